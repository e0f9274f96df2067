"""Load-balanced BSP: numbers of samples per worker and iteration with which all workers finish together.

After Chen et al., "Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated Environments" (SoCC
2020). Sizes change only between iterations, and their sum never changes, since the job's convergence depends on it.
`predictors` predict speeds, `analytic` is the rule where time is proportional to samples (CPU clusters),
`numeric` the one for launch overheads, saturation and memory limits (GPU clusters); a worker's `reporter` reports its
predicted speed, and the `manager` decides from all reports.
"""
