"""hotset measured beside its limits and its peers, in one run on one machine: ``python -m bench``.

Nothing here is imported by the package. The numbers are ratios: each contestant does the same work in the same run, in
alternating order, and the best of several runs counts. Absolute numbers of two runs are never compared.
"""
