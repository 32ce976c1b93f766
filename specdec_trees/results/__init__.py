"""What lies on disk: rows and their schemas, the store, locks, identities of cells, a sweep's progress.

No torch, no configs, no statistics.
"""
