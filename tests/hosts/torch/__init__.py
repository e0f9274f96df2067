"""The back end of torch.distributed, in processes over an emulated fabric."""
