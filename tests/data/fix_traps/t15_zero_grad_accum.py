import torch
from torch import nn

torch.manual_seed(0)
net = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
for step in range(60):
    opt.zero_grad(set_to_none=False)
    for part in net if step == 0 else [net[0]]:
        part(torch.ones(2, 8)).square().mean().backward()
    opt.step()
print(f"{sum(p.sum() for p in net.parameters()).item():.5f}")
