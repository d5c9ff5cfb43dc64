"""The paper's experiments: its tables 3 and 4 and figures 2, 3 and 4, with its baselines.

python -m examples.paper SETS...
"""
