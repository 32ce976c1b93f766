"""Is a folder of results complete, of committed code, lossless where declared, and unaltered?"""
