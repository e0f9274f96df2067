"""What a run's workers train: `digits`, the demo's, a `convolution` on the same images, or a `script` of one's
own.
"""
