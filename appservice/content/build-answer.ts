/**
 * One part of an answer as an event, and as the edit that replaces it. Every content here ends in a homeserver that refuses floats and 64 KiB,
 * and in clients that show what the newest edit says: so an edit always has the whole part in `m.new_content`, never a relation of its own,
 * and loses its HTML before it gets too large. `m.mentions` is always there and empty: without it clients look for names in the text, and a
 * model could ring everybody's phone with `@room`.
 */
import type { EventId } from '../../src/ids.ts';
import { type JsonObject, jsonBytes } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { shorten } from './clean-text.ts';
import { buildRelation, type Place } from './relations.ts';
import { type Rendered, renderMarkdown } from './render-markdown.ts';
import { buildRunField, RUN_KEY, type RunField } from './run-field.ts';

/** MSC4357: the text still grows. Absent in the final edit, and never back after it (octos PR 382). */
export const LIVE_KEY = 'org.matrix.msc4357.live';

export interface AnswerPart extends RunField {
  /** `Part.text` of split-answer.ts. */
  readonly text: string;
  /** False for the final version of this message. */
  readonly live: boolean;
}

const FALLBACK_CHARS = 100;

/** Content of the message that later edits target. At most LIMITS.partEventBytes for a part made by split-answer.ts. */
export function buildAnswerContent(answer: AnswerPart & Place): JsonObject {
  return withinSize(answer, (text) => ({ ...buildVersion(answer, text), ...buildRelation(answer) }));
}

/** Content of an edit. `target` is the original message, never another edit. */
export function buildAnswerEdit(answer: AnswerPart & { readonly target: EventId }): JsonObject {
  return withinSize(answer, (text) => {
    const version = buildVersion(answer, text);
    const { [RUN_KEY]: run, [LIVE_KEY]: live } = version;
    return {
      msgtype: 'm.text',
      body: `* ${shorten(text.body.split('\n', 1)[0] ?? '', FALLBACK_CHARS)}`,
      'm.mentions': {},
      'm.new_content': version,
      'm.relates_to': { rel_type: 'm.replace', event_id: answer.target },
      [RUN_KEY]: run ?? null,
      ...(live === undefined ? {} : { [LIVE_KEY]: live }),
    };
  });
}

/** What both forms share: the message as it should be shown. */
function buildVersion(answer: AnswerPart, text: Rendered): JsonObject {
  return {
    ...buildText('m.text', text),
    [RUN_KEY]: buildRunField(answer),
    ...(answer.live ? { [LIVE_KEY]: {} } : {}),
  };
}

/** Text with its HTML, as `m.text` or `m.notice`. */
export function buildText(msgtype: 'm.text' | 'm.notice', { body, formattedBody }: Rendered): JsonObject {
  return {
    msgtype,
    body,
    ...(formattedBody === undefined ? {} : { format: 'org.matrix.custom.html', formatted_body: formattedBody }),
    'm.mentions': {},
  };
}

/** The split leaves room for HTML; where it grew past that between two measurements, the text goes without. */
function withinSize(answer: AnswerPart, build: (text: Rendered) => JsonObject): JsonObject {
  const text = renderMarkdown(answer.text, { live: answer.live });
  const content = build(text);
  return jsonBytes(content) <= LIMITS.partEventBytes ? content : build({ body: text.body });
}
