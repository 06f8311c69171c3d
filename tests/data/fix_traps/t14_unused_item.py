import torch


class Counter:
    """item() is a method of ours that does something"""

    def __init__(self):
        self.n = 0

    def item(self):
        self.n += 1


torch.manual_seed(0)
c = Counter()
w = torch.randn(64, 64)
for _step in range(60):
    w = torch.tanh(w @ w)
    c.item()
print(c.n)
