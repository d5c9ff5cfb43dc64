"""Fewer dimensions of an embedding, without training anything again.

    python examples/embeddings.py

A vector database holds an embedding of every image; here, what the hidden layer of a small neural
network makes of scikit-learn's digits, 256 numbers an image. Keeping 16 of them needs a sixteenth
of the memory, and no projection has to be applied to new vectors: the dimensions are merely left
out. How much worse does search become?
"""

import sys
from pathlib import Path

try:
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier

    from kmufs_stream import KMeansUFS, convert, select
except ModuleNotFoundError as missing:
    print(f"{missing}: pip install .", file=sys.stderr)
    sys.exit(2)

DIMENSIONS, KEPT = 256, 16


def embedder(images: np.ndarray, digits: np.ndarray) -> MLPClassifier:
    """A network that has learnt to read some of the images."""
    network = MLPClassifier((DIMENSIONS,), tol=0.02, n_iter_no_change=3, random_state=0)
    return network.fit(images, digits)


def embedded(network: MLPClassifier, images: np.ndarray) -> np.ndarray:
    """What its hidden layer makes of images, float32."""
    hidden: np.ndarray = np.maximum(images @ network.coefs_[0] + network.intercepts_[0], 0)
    return hidden.astype(np.float32)


def main(folder: Path, copies: int = 20) -> dict[str, float]:
    """Choose dimensions of an array on disk, and search by them."""
    folder.mkdir(parents=True, exist_ok=True)
    images, digits = load_digits(return_X_y=True)
    network = embedder(images[:600], digits[:600])

    # The data base: other images, each several times with noise. Queries: images it does not hold.
    noise = np.random.default_rng(0).normal(0, 2, (copies * 600, 64))
    vectors = embedded(network, np.tile(images[600:1200], (copies, 1)) + noise)
    shown = np.tile(digits[600:1200], copies)
    queries, asked = embedded(network, images[1200:]), digits[1200:]
    np.save(folder / "vectors.npy", vectors)

    # .npy becomes Zarr once, in blocks; so do .csv, .parquet, .h5 and others.
    convert(folder / "vectors.npy", folder / "vectors.zarr", overwrite=True)
    chosen = select(folder / "vectors.zarr", k=10, h=KEPT).selected

    recall = {}
    for name, columns in (
        ("all 256", np.arange(DIMENSIONS)),
        (f"the {KEPT} chosen", chosen),
        (f"{KEPT} at random", np.random.default_rng(1).choice(DIMENSIONS, KEPT, replace=False)),
    ):
        index = KNeighborsClassifier(5).fit(vectors[:, columns], shown)
        recall[name] = float(index.score(queries[:, columns], asked))
        print(f"five nearest neighbours by {name} dimensions: {recall[name]:.1%} the right digit")

    # New vectors as they come, from the same rule, as a step of a scikit-learn pipeline:
    step = KMeansUFS(k=10, h=KEPT).fit(vectors)
    print(f"a new batch: {queries.shape} becomes {step.transform(queries).shape}")
    # The scores are the same from memory or disk, to rounding. So is what is chosen by them; by
    # solver="consensus" it need not be, whose K-means can end elsewhere from the last bit on.
    same = np.intersect1d(step.get_support(indices=True), chosen).size
    print(f"chosen in memory as from the store: {same} of {KEPT} dimensions")
    return recall


if __name__ == "__main__":
    main(Path("example-embeddings"))
