"""Networks of PyTorch in private training (extra `torch`)."""
