import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(1000, 16, sparse=True)
opt = torch.optim.SGD(emb.parameters(), lr=0.1)
for _step in range(60):
    opt.zero_grad()
    emb(torch.randint(0, 1000, (8,))).square().mean().backward()
    opt.step()
print(f"{emb.weight.sum().item():.4f}")
