"""Tensor parallelism in PyTorch: layers whose weights and activations are cut into blocks over a mesh of ranks.

`traffic` has the formulas of the numbers that a layer moves, `mesh` the ranks' groups, `products` the three products of
blocks, `layers` and `loss` the parts of models, and `plan` turns a model of PyTorch's own layers into a parallel one.
"""
