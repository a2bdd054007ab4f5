"""A word language model: an LSTM whose state goes from one piece of text to the next."""
# peak: 43853768
import torch
from torch import nn

words, width, batch, length = 4000, 200, 20, 35
encoder, decoder = nn.Embedding(words, width).cuda(), nn.Linear(width, words).cuda()
rnn = nn.LSTM(width, width, 2, dropout=0.2).cuda()
parameters = [*encoder.parameters(), *rnn.parameters(), *decoder.parameters()]
state = (torch.zeros(2, batch, width).cuda(), torch.zeros(2, batch, width).cuda())
criterion = nn.CrossEntropyLoss()
text = torch.randint(words, (3 * length + 1, batch)).cuda()
total = 0
for start in range(0, text.size(0) - 1, length):
    data, target = text[start:start + length], text[start + 1:start + 1 + length].reshape(-1)
    state = tuple(s.detach() for s in state)
    for p in parameters:
        p.grad = None
    output, state = rnn(encoder(data), state)
    loss = criterion(decoder(output).view(-1, words), target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 0.25)
    for p in parameters:
        p.data.add_(p.grad, alpha=-20)
    total += loss.item()
print(f"loss {total / 3:.2f}")
