/**
 * A token that is a plain string reaches a log line sooner or later: in an error's `options`, a debug print, a JSON dump. This type has
 * no readable property at all, prints as `[secret]` everywhere, and says `reveal()` at the few places that may use it (G12).
 */
const SHOWN = '[secret]';

export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** The text itself: only for the request or comparison that needs it. */
  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return SHOWN;
  }

  toJSON(): string {
    return SHOWN;
  }

  /** What console.log and util.inspect show. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return SHOWN;
  }
}
