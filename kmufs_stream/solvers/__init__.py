"""Solvers: pure functions of arrays that choose h of p features.

They share these arguments:

components : float64 array, shape (p, k)
    P_k, orthonormal columns, by falling eigenvalue.
eigenvalues : float64 array, shape (k,)
    ``s_j^2 / n``, s the singular values of the standardised data; A is
    ``P_k diag(eigenvalues) P_k^T``.
rows : callable
    From indices to rows of the correlation matrix.
h : int
    Number of features to choose, 1..p.
tolerance : float
    What differs by no more is a tie, and ties go to the lower index.
watch : callable
    Called after each iteration with what ``Solution.history`` keeps of it.

All raise ValueError for an h outside 1..p and for shapes that disagree. Working memory without
the arguments is bounded by functions such as :func:`admm_bytes`.
"""
