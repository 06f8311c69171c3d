import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 8)
x = torch.ones(2, 8)
lr = torch.tensor(0.01)
opt = torch.optim.Adagrad(net.parameters(), lr=0.01)
opt2 = torch.optim.Adam(net.parameters(), lr=0.01, differentiable=True)
for _step in range(60):
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
print(f"{net.weight.sum().item():.5f}")
