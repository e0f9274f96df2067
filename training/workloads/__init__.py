"""What is trained: weights as one flat array, data as rows (`weir.training.job.Workload`)."""
