"""Load-balanced BSP: how many samples each worker computes with in the next iteration, so that all are done together.

After Chen et al., "Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated Environments" (SoCC
2020). Sizes change between iterations alone, and their sum never: it is what the job's convergence depends on.
`predictors` and `narx` foretell speeds, `analytic` is the rule where time is proportional to samples (CPU clusters),
`numeric` the one for launch overheads, saturation and memory limits (GPU clusters); a worker's `reporter` says how fast
it will be, and the `manager` decides from what all say.
"""
