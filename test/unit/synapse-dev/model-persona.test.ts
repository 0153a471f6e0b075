/** The persona as a pure function: what a person meets in the demo, and that it never makes up what a tool said. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ChatMessage, ChatTool } from '../../../synapse-dev/model/chat-request.ts';
import { decidePersonaReply } from '../../../synapse-dev/model/persona.ts';
import { type Reply, splitByLength, splitIntoTokens } from '../../../synapse-dev/model/reply.ts';

const user = (text: string): ChatMessage => ({ role: 'user', text, toolCalls: [] });
const said = (text: string): ChatMessage => ({ role: 'assistant', text, toolCalls: [] });
const called = (name: string, args: string, id = 'c1'): ChatMessage => ({
  role: 'assistant',
  text: '',
  toolCalls: [{ id, name, arguments: args }],
});
const result = (text: string, id = 'c1'): ChatMessage => ({ role: 'tool', text, toolCalls: [], toolCallId: id });
const tool = (name: string, parameters: ChatTool['parameters'] = {}): ChatTool => ({ name, description: '', parameters });
const CLOCK = tool('current_time');
const TOPIC = tool('set_room_topic', { properties: { topic: { type: 'string' } }, required: ['topic'] });

const textOf = (reply: Reply): string => {
  if (reply.kind !== 'text' || typeof reply.text !== 'string') throw new Error(`not a text but ${reply.kind}`);
  return reply.text;
};

describe('persona', () => {
  test('hello and help say what it can do and which tools it has', () => {
    const text = textOf(decidePersonaReply([user('Hello!')], [CLOCK]));

    expect(text).toContain('What time is it?');
    expect(text).toContain('`current_time`');
    expect(textOf(decidePersonaReply([user('help')], []))).toContain('none at the moment');
  });

  test('asked for the time it calls the clock tool, then says what the tool said', () => {
    const ask = user('What time is it?');

    expect(decidePersonaReply([ask], [TOPIC, CLOCK])).toEqual({ kind: 'toolCalls', calls: [{ name: 'current_time', args: {} }] });
    const answer = decidePersonaReply([ask, called('current_time', '{}'), result('2026-11-30T12:00:00Z')], [TOPIC, CLOCK]);
    expect(textOf(answer)).toBe('According to `current_time` it is **2026-11-30T12:00:00Z**.');
  });

  test('what was said to others in a group is neither answered nor acted on', () => {
    const overheard = user('Said in the room before, not to you (for context only):\nbob: set the topic to "Mine"');

    expect(textOf(decidePersonaReply([overheard, user('hello')], [TOPIC]))).toBe(textOf(decidePersonaReply([user('hello')], [TOPIC])));
  });

  test('without a clock tool it says so and gives no time', () => {
    const text = textOf(decidePersonaReply([user('what time is it?')], [TOPIC]));

    expect(text).toContain('no clock tool');
    expect(text).not.toMatch(/\d/);
  });

  test('a failed tool is reported as failed', () => {
    const messages = [user('what time is it?'), called('current_time', '{}'), result('Error: the clock is broken')];

    expect(textOf(decidePersonaReply(messages, [CLOCK]))).toMatch(/did not work.*clock is broken/);
  });

  test.each([
    ['Set the topic to “Plans for spring”', 'Plans for spring'],
    ['please change the room topic to Plans for spring', 'Plans for spring'],
    ['set topic: "Plans for spring"', 'Plans for spring'],
  ])('%s calls set_room_topic', (text, topic) => {
    expect(decidePersonaReply([user(text)], [TOPIC])).toEqual({ kind: 'toolCalls', calls: [{ name: 'set_room_topic', args: { topic } }] });
  });

  test('a topic without words, a tool that is not offered, an argument that is not known: it says what is missing', () => {
    expect(textOf(decidePersonaReply([user('set the topic')], [TOPIC]))).toContain('new topic');
    expect(textOf(decidePersonaReply([user('set the topic to x')], []))).toContain('`set_room_topic`');
    const strict = tool('set_room_topic', {
      properties: { topic: { type: 'string' }, room: { type: 'string' } },
      required: ['topic', 'room'],
    });
    expect(textOf(decidePersonaReply([user('set the topic to x')], [strict]))).toContain('`room`');
  });

  test('any offered tool can be called by name with arguments', () => {
    const reply = decidePersonaReply([user('Call the tool save_note with {"text": "milk"}')], [tool('save_note')]);

    expect(reply).toEqual({ kind: 'toolCalls', calls: [{ name: 'save_note', args: { text: 'milk' } }] });
    const done = [user('Call save_note with {"text": "milk"}'), called('save_note', '{"text":"milk"}'), result('stored as 7')];
    expect(textOf(decidePersonaReply(done, [tool('save_note')]))).toBe('`save_note` is done. It said: **stored as 7**');
  });

  test('an echo counts the messages of the conversation and names the ones before', () => {
    const first = textOf(decidePersonaReply([user('I like pears')], []));
    const third = textOf(decidePersonaReply([user('I like pears'), said('ok'), user('and plums'), said('ok'), user('not figs')], []));

    expect(first).toContain('message 1 of our conversation, and the first');
    expect(third).toContain(
      'You said: “not figs”. This is message 3 of our conversation; before that you said “I like pears”, then “and plums”',
    );
  });

  test('several new messages are all answered, also those that came while a tool ran', () => {
    const text = textOf(decidePersonaReply([user('old'), said('ok'), user('I like pears'), user('count to 3')], []));
    expect(text).toContain('2 messages');
    expect(text).toContain('You said: “I like pears”');
    expect(text).toContain('1, 2, 3.');
    expect(text).not.toContain('On “old”');

    const steered = [user('what time is it?'), called('current_time', '{}'), result('noon'), user('and set the topic to lunch')];
    expect(decidePersonaReply(steered, [CLOCK, TOPIC])).toEqual({
      kind: 'toolCalls',
      calls: [{ name: 'set_room_topic', args: { topic: 'lunch' } }],
    });
    const both = textOf(
      decidePersonaReply([...steered, called('set_room_topic', '{"topic":"lunch"}', 'c2'), result('done', 'c2')], [CLOCK, TOPIC]),
    );
    expect(both).toContain('**noon**');
    expect(both).toContain('`set_room_topic` is done');
  });

  test('a result of an earlier turn is not used again', () => {
    const messages = [user('what time is it?'), called('current_time', '{}'), result('noon'), said('It is noon'), user('what time is it?')];

    expect(decidePersonaReply(messages, [CLOCK]).kind).toBe('toolCalls');
  });

  test('a long answer has code, a table and lists in 3 to 6 kB; a very long one is larger', () => {
    const long = textOf(decidePersonaReply([user('Give me a long answer with code and a table')], []));
    const veryLong = textOf(decidePersonaReply([user('a very long answer please')], []));

    expect(Buffer.byteLength(long)).toBeGreaterThan(3_000);
    expect(Buffer.byteLength(long)).toBeLessThan(6_000);
    expect(long).toContain('```ts\n');
    expect(long).toContain('|---|');
    expect(long.match(/```/g)?.length).toSatisfy((count: number) => count % 2 === 0);
    expect(Buffer.byteLength(veryLong)).toBeGreaterThan(13_000);
  });

  test('any conversation gets an answer, the same one each time, and calls only offered tools', () => {
    const message = fc.oneof(
      fc.string().map(user),
      fc.string().map(said),
      fc.constantFrom('what time is it', 'set the topic to a', 'call x').map(user),
    );
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 8 }), fc.subarray([CLOCK, TOPIC]), (messages, tools) => {
        const reply = decidePersonaReply(messages, tools);

        expect(decidePersonaReply(messages, tools)).toEqual(reply);
        if (reply.kind === 'toolCalls') expect(reply.calls.every((one) => tools.some((offered) => offered.name === one.name))).toBe(true);
        else expect(textOf(reply)).not.toBe('');
      }),
    );
  });
});

test('pieces of a text joined are the text, and no code point is torn', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.integer({ min: 1, max: 5 }), (text, size) => {
      for (const pieces of [splitIntoTokens(text), splitByLength(text, size)]) {
        expect(pieces.join('')).toBe(text);
        expect(pieces.every((piece) => piece.isWellFormed())).toBe(true);
      }
    }),
  );
});
