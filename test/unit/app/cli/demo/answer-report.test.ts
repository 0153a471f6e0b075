import { expect, test } from 'vitest';
import { buildAnswerReport } from '../../../../../src/app/cli/demo/answer-report.ts';
import { readMessages } from '../../../../../synapse-dev/homeserver/room-watch.ts';

const run = (part: number, status: string) => ({ run_id: '01M8P51YC7QA7B2DA33VGPP0H9', part, status, tools: ['current_time'] });
const event = (at: number, eventId: string, content: Record<string, unknown>) => ({
  at,
  event: { event_id: eventId, type: 'm.room.message', sender: '@o:s', origin_server_ts: at, content: content as never },
});
const edit = (target: string, body: string, field: unknown) => ({
  'm.relates_to': { rel_type: 'm.replace', event_id: target },
  'm.new_content': { body, 'ixo.oracle.run': field },
});

test('versions of all parts stand in order of arrival with their time since the prompt', () => {
  const parts = readMessages([
    event(1_100, '$a', { body: 'He', 'ixo.oracle.run': run(1, 'running') }),
    event(1_300, '$b', { body: 'wor', 'ixo.oracle.run': run(2, 'running') }),
    event(1_200, '$a1', edit('$a', 'Hello', run(1, 'running'))),
    event(1_400.4, '$b1', edit('$b', 'world', run(2, 'completed'))),
  ]);

  expect(buildAnswerReport(parts, 1_000)).toEqual({
    eventIds: ['$a', '$b'],
    versions: [
      { text: 'He', atMs: 100, part: 1 },
      { text: 'Hello', atMs: 200, part: 1 },
      { text: 'wor', atMs: 300, part: 2 },
      { text: 'world', atMs: 400, part: 2 },
    ],
    finalText: 'Hello\n\nworld',
    runId: '01M8P51YC7QA7B2DA33VGPP0H9',
    status: 'completed',
    tools: ['current_time'],
    events: 4,
  });
});

test('a refusal is no run', () => {
  const parts = readMessages([
    event(1_100, '$n', { body: 'You have no credits left.', 'ixo.oracle.error': { status: 402, code: 'OUT_OF_CREDITS' } }),
  ]);

  expect(buildAnswerReport(parts, 1_000)).toMatchObject({
    runId: null,
    status: 'refused',
    code: 'OUT_OF_CREDITS',
    finalText: 'You have no credits left.',
  });
});

test('a run that failed without text is told by its notice', () => {
  const error = { status: 502, code: 'MODEL_ERROR', run_id: '01M8P51YC7QA7B2DA33VGPP0H9' };

  const report = buildAnswerReport(readMessages([event(1_100, '$n', { body: 'The model failed.', 'ixo.oracle.error': error })]), 1_000);

  expect(report).toMatchObject({ runId: '01M8P51YC7QA7B2DA33VGPP0H9', status: 'failed', code: 'MODEL_ERROR' });
});
