"""ResNet inference, once as it should be and once with the model moved to the device in every step.

Uses torchvision's ResNet-50 when it is installed, else the same architecture written out below.
"""

import argparse

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, layers, width=64, classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for number, blocks in enumerate(layers):
            stage = []
            for block in range(blocks):
                stage.append(Bottleneck(inputs, width << number, 2 if number and not block else 1))
                inputs = 4 * (width << number)
            setattr(self, f"layer{number + 1}", nn.Sequential(*stage))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def build(small):
    if small:
        return ResNet((1, 1, 1, 1), width=8, classes=10)
    try:
        from torchvision.models import resnet50
    except ImportError:
        return ResNet((3, 4, 6, 3))
    return resnet50()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a few thousandths of the work; the default on the CPU")
    parser.add_argument("--batch", type=int, default=None, help="32 on a GPU, 2 on the CPU unless given")
    parser.add_argument("--move-each-step", action="store_true", help="model.to(device) in every step, and back")
    parser.add_argument("--one-way", action="store_true", help="move a fresh host copy to the device, never back")
    parser.add_argument("--pin", action="store_true", help="pinned input and an asynchronous copy")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    torch.manual_seed(0)
    on_gpu = args.device.startswith("cuda")
    small = args.small or not on_gpu
    batch = args.batch or (32 if on_gpu else 2)
    model = build(small).eval()
    images = torch.randn(batch, 3, 64 if small else 224, 64 if small else 224)
    if args.channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    if args.pin:
        images = images.pin_memory()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    moves = args.move_each_step or args.one_way
    if not moves:
        model = model.to(args.device)
    call = torch.compile(model) if args.compile else model

    def step():
        if args.one_way:
            for name, value in [*model.named_parameters(), *model.named_buffers()]:
                value.data = state[name]
        if moves:
            model.to(args.device)
        x = images.to(args.device, non_blocking=args.pin)
        y = call(x)
        if args.move_each_step:
            model.to("cpu")
        return y

    with torch.no_grad():
        for _ in range(args.steps):
            step()
    print(f"resnet: {args.steps} steps on {args.device}{', model moved each step' if moves else ''}")


if __name__ == "__main__":
    main()
