/**
 * The persona's long texts, apart from its decisions. They hold every markdown construct that a rendered answer can break on when an
 * edit cuts it in the middle: fenced code, a table, nested lists, quotes, links, emphasis, characters of more than one byte.
 */

export function countAloud(to: number): string {
  const numbers = Array.from({ length: to }, (_, index) => index + 1);
  const lines: string[] = [];
  for (let from = 0; from < to; from += 10) lines.push(numbers.slice(from, from + 10).join(', '));
  return `${lines.join(',\n')}.`;
}

export function buildLongAnswer(asked: string, size: 'long' | 'very long'): string {
  const title = asked
    .replace(/\s+/g, ' ')
    .replace(/[`*_[\]<>|#]/g, '')
    .trim()
    .slice(0, 80);
  const opening = [
    `## A long answer\n\nYou asked: “${title}”. I know only one subject well, so here is **how a message becomes an answer**.`,
    ...CHAPTERS,
  ];
  const numbers = Array.from({ length: size === 'long' ? 3 : 40 }, (_, index) => buildNumberChapter(index + 2));
  if (size === 'long') return [...opening, '## Some numbers at the end', ...numbers].join('\n\n');
  return [...opening, '## And because it should be very long: some numbers', ...numbers, '*That was all.*'].join('\n\n');
}

const CHAPTERS: readonly string[] = [
  `### 1. The way of a message

1. You write in a room, and your client sends an event to its homeserver.
2. The homeserver hands the event to the oracle in a *transaction*:
   - the oracle stores it **before** it answers \`200\`;
   - a transaction that comes twice is stored once.
3. The oracle decides whether the message is meant for it.
4. It checks who you are and what you may ask for, before any model is called.
5. The model writes; you see the text grow, because one message is edited again and again.

> If the process dies between two of these steps, the next one finds what is stored and goes on. Nothing is answered twice, and
> nothing is forgotten.`,
  `### 2. What can happen on the way

| What happens | What you see | What the oracle does |
|---|---|---|
| The model is slow | text that grows slowly | waits, within a limit |
| The model falls silent | a notice | ends the answer and says so |
| You write again meanwhile | one answer to both | hands the new message to the running answer |
| You ask it to stop | the text so far | cancels the call to the model |
| The oracle restarts | a pause | resumes from the last stored step |
| The answer is very long | several messages | starts a new part before the first one is full |`,
  `### 3. In code

The heart of the matter is short. It reads a stream and edits a message, but not for every token:

\`\`\`ts
async function show(stream: AsyncIterable<string>, reply: Reply): Promise<void> {
  let text = '';
  for await (const piece of stream) {
    text += piece;
    reply.show(text); // edits at most every two seconds
  }
  reply.end(text); // the last edit is sent at once
}
\`\`\`

The same in Python, for those who prefer it:

\`\`\`python
async def show(stream, reply):
    text = ""
    async for piece in stream:
        text += piece
        reply.show(text)
    reply.end(text)
\`\`\`

Inline code such as \`const n = 1\` and \`<b>not bold</b>\` must stay as it is.`,
  `### 4. Small things that are easy to get wrong

- **Characters** of more than one byte: ä, é, ß, €, 漢字, 🙂, 👩‍🚀. None of them may be torn in two.
- **Links**: [the Matrix specification](https://spec.matrix.org/latest/) opens in the browser.
- **Nested lists**:
  - first level
    - second level, with *emphasis*, **strong** and ***both***
  - back on the first
- **Markup in text**: 2 < 3 && 3 > 2, and \\*stars\\* that are only stars.
- **Long words**: Donaudampfschifffahrtsgesellschaftskapitän.

---

### 5. In short

1. Store first, answer then.
2. Decide once, and say why.
3. Show progress, but sparingly.
4. End every answer, even a broken one, with a clear state.

Ask for a *very* long answer to see how it is spread over several messages.`,
];

function buildNumberChapter(n: number): string {
  const factors = primeFactors(n);
  const kind = factors.length === 1 ? 'a prime number' : `the product ${factors.join(' × ')}`;
  const rows = Array.from({ length: 5 }, (_, index) => `| ${index + 1} | ${n * (index + 1)} | ${n ** (index + 1)} |`);
  const code = `\`\`\`ts\nconst n = ${n};\nconsole.log(n * n, n.toString(2)); // ${n * n} ${n.toString(2)}\n\`\`\``;
  return [
    `### The number ${n}`,
    `The number **${n}** is ${kind}. Its square is ${n * n}, in base two it is written \`${n.toString(2)}\`, and the numbers from 1 to ${n} add up to ${(n * (n + 1)) / 2}.`,
    `| k | ${n} × k | ${n} to the power k |\n|---|---|---|\n${rows.join('\n')}`,
    code,
  ].join('\n\n');
}

function primeFactors(n: number): number[] {
  const factors: number[] = [];
  let rest = n;
  for (let p = 2; p * p <= rest; p += 1) {
    for (; rest % p === 0; rest /= p) factors.push(p);
  }
  return rest > 1 ? [...factors, rest] : factors;
}
