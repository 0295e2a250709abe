"""Scripts as people wrote them for Alnair: they know nothing of hotset. ``IMPORTS`` are the ways to begin them."""

from __future__ import annotations

IMPORTS = {
    "lib": """
from lib.AlnairJobDataset import AlnairJobDataset
from lib.AlnairJobDataLoader import AlnairJobDataLoader
""",
    "lib-star": """
from lib.AlnairJobDataset import *
from lib.AlnairJobDataLoader import *
""",
    "lib-renamed": """
from lib.AlnairJobDataset import AlnairJobDataset as AJDataset
from lib.AlnairJobDataLoader import AlnairJobDataLoader
AlnairJobDataset = AJDataset
""",
    "modules": """
from AlnairJobDataset import AlnairJobDataset
from AlnairJobDataLoader import AlnairJobDataLoader
""",
    "modules-star": """
from AlnairJobDataset import *
from AlnairJobDataLoader import *
""",
    "package": """
from AlnairJob import AlnairJobDataset, AlnairJobDataLoader
""",
    "package-star": """
from AlnairJob import *
""",
}

#: Images by class, as in Alnair's example for ImageNet; trains with workers, then validates with `next`.
IMAGES = """
import io
import sys

import numpy as np
import torch
from PIL import Image


class ImageNetDataset(AlnairJobDataset):
    def __init__(self, keys, transform=None, target_transform=None):
        self.transform = transform
        super().__init__(keys)
        self.target_transform = target_transform

    def find_classes(self):
        groups = {}
        for key in self.keys:
            groups.setdefault(key.split('/')[2], []).append(key)
        classes = sorted(groups.keys())
        return {name: number for number, name in enumerate(classes)}

    def __convert__(self):
        class_to_idx = self.find_classes()
        samples, targets = [], []
        for key in self.keys:
            samples.append(self.data[key])
            targets.append(class_to_idx[key.split('/')[2]])
        return samples, targets

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.get_data(index))).convert('RGB')
        target = self.get_target(index)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self):
        return len(self.data)


def transform(image):
    return torch.tensor(np.asarray(image.resize((8, 8))), dtype=torch.float32) / 255


def train(train_loader, model, optimizer, epoch):
    count = 0
    for i, (images, target) in enumerate(train_loader):
        loss = torch.nn.functional.cross_entropy(model(images.flatten(1)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count += len(images)
        print('Epoch %d batch %d of %d' % (epoch, i + 1, train_loader.num_batches), flush=True)
    print('trained on', count, flush=True)


def validate(val_loader):
    count = 0
    while True:
        try:
            images, target = next(val_loader)
        except StopIteration:
            break
        count += len(images)
    print('validated on', count, flush=True)


def main():
    workers = int(sys.argv[1])
    train_dataset = ImageNetDataset(keys=['imagenet-mini/train'], transform=transform)
    val_dataset = ImageNetDataset(keys=['imagenet-mini/val'], transform=transform)
    train_loader = AlnairJobDataLoader(train_dataset, batch_size=8, shuffle=True, num_workers=workers, pin_memory=False)
    val_loader = AlnairJobDataLoader(val_dataset, batch_size=8, shuffle=False, num_workers=workers)
    model = torch.nn.Linear(8 * 8 * 3, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for epoch in range(2):
        train(train_loader, model, optimizer, epoch)
        validate(val_loader)


if __name__ == '__main__':
    main()
"""

#: Whole pickled batches as objects, as in Alnair's example for CIFAR-10, with the older name of the hook.
PICKLES = """
import pickle

import numpy as np


class CIFAR10Dataset(AlnairJobDataset):
    def __preprocess__(self):
        data, targets = [], []
        for key in self.keys:
            entry = pickle.loads(self.data[key], encoding='latin1')
            data.append(entry['data'])
            targets.extend(entry['labels'])
        data = np.vstack(data).reshape(-1, 3, 32, 32)
        return data.transpose((0, 2, 3, 1)), targets

    def __getitem__(self, index):
        img, target = self.data[index], self.targets[index]
        return img, target

    def __len__(self):
        return len(self.data)


if __name__ == '__main__':
    trainset = CIFAR10Dataset(keys=['data_batch_1', 'data_batch_2', 'data_batch_3'])
    trainloader = AlnairJobDataLoader(trainset, batch_size=4, shuffle=True, num_workers=2)
    for epoch in range(2):
        seen = []
        for i, data in enumerate(trainloader, 0):
            inputs, labels = data
            assert tuple(inputs.shape[1:]) == (32, 32, 3)
            assert (inputs[:, 0, 0, 0] == labels).all()
            seen.extend(labels.tolist())
        print('epoch', epoch, 'saw', len(seen), len(set(seen)), flush=True)
"""
