/**
 * Parsed JSON from outside may be nested a hundred thousand deep: harmless until somebody walks it by recursion (JSON.stringify, a schema).
 * So size and depth are measured first, without recursion (G14). Cost: one visit per value.
 */

export interface JsonBounds {
  readonly maxBytes: number;
  readonly maxDepth: number;
}

/** Stops as soon as a bound is passed. Bytes are counted without escapes: a bound on memory, not the size on the wire. */
export function decideJsonBounds(json: unknown, { maxBytes, maxDepth }: JsonBounds): 'fits' | 'too_large' | 'too_deep' {
  const waiting: { value: unknown; depth: number }[] = [{ value: json, depth: 0 }];
  let bytes = 0;
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { value, depth } = next;
    if (depth > maxDepth) return 'too_deep';
    bytes += typeof value === 'string' ? Buffer.byteLength(value) + 2 : 4;
    if (typeof value === 'object' && value !== null) {
      for (const [key, inner] of Object.entries(value)) {
        if (!Array.isArray(value)) bytes += Buffer.byteLength(key) + 4;
        if (bytes + waiting.length > maxBytes) return 'too_large';
        waiting.push({ value: inner, depth: depth + 1 });
      }
    }
    if (bytes > maxBytes) return 'too_large';
  }
  return 'fits';
}
