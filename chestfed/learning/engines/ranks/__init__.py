"""Clients on the ranks of torch.distributed: their connection, who hosts whom, and what they compute together."""
