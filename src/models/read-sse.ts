/**
 * Server-sent events without a promise for each line: a piece of the response goes in, the events that it completes come out. The provider's
 * client does the same through eight async iterators, which cost ten times the parsing. A piece may end anywhere, also inside a character.
 */
export interface SseEvent {
  readonly event: string;
  readonly data: string;
}
export interface SseReader {
  /** @returns the events that are complete now. */
  push(piece: Uint8Array): SseEvent[];
  /** The last event, when the server left out the empty line after it. */
  end(): SseEvent[];
}

export function createSseReader(): SseReader {
  const decoder = new TextDecoder();
  /** The line that has no end yet. */
  let rest = '';
  let event = '';
  let data: string[] = [];

  function take(line: string, events: SseEvent[]): void {
    if (line === '') {
      if (data.length > 0) events.push({ event, data: data.join('\n') });
      event = '';
      data = [];
      return;
    }
    const colon = line.indexOf(':');
    const name = colon === -1 ? line : line.slice(0, colon);
    if (name !== 'data' && name !== 'event') return;
    const value = colon === -1 ? '' : line.slice(line.charCodeAt(colon + 1) === 0x20 ? colon + 2 : colon + 1);
    if (name === 'data') data.push(value);
    else event = value;
  }

  function takeLines(text: string): SseEvent[] {
    // A long line is not searched again with each piece.
    if (!/[\r\n]/u.test(text)) {
      rest += text;
      return [];
    }
    // The second half of a CRLF may come with the next piece.
    const whole = rest + text;
    const most = whole.endsWith('\r') ? whole.length - 1 : whole.length;
    const lines = whole.slice(0, most).split(/\r\n|\n|\r/u);
    rest = (lines.pop() ?? '') + whole.slice(most);
    const events: SseEvent[] = [];
    for (const line of lines) take(line, events);
    return events;
  }

  return {
    push: (piece) => takeLines(decoder.decode(piece, { stream: true })),
    end() {
      const events = takeLines(`${decoder.decode()}\n`);
      take('', events);
      return events;
    },
  };
}
