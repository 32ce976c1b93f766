"""What tables and figures are made with: runs, metrics, verdicts, tables, style. It knows no paper.

No torch, no paper's name, no file but what an output writes.
"""
