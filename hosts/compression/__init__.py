"""Compression of gradients: codecs by name, error feedback, and the parts that they share. Pure; no network, no clock.

A codec is *homomorphic* if the result depends on the sum of the workers' codes and their number alone, so that switches
add the codes. Others travel by all-gather, and every worker adds what they decode to.
"""
