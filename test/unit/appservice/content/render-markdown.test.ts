import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { renderMarkdown } from '../../../../appservice/content/render-markdown.ts';
import { LIMITS } from '../../../../src/limits.ts';

const html = (text: string): string | undefined => renderMarkdown(text).formattedBody;
const live = (text: string): string | undefined => renderMarkdown(text, { live: true }).formattedBody;

describe('markdown', () => {
  test.each([
    ['**b** _i_ ~~s~~ `c`', '<p><strong>b</strong> <em>i</em> <s>s</s> <code>c</code></p>'],
    ['# t', '<h1>t</h1>'],
    ['5. x', '<ol start="5">\n<li>x</li>\n</ol>'],
    ['a\n*b*', '<p>a<br />\n<em>b</em></p>'],
    ['[a](https://x.y "t")', '<p><a href="https://x.y">a</a></p>'],
    ['[m](mailto:a@b.c)', '<p><a href="mailto:a@b.c">m</a></p>'],
    ['[u](https://matrix.to/#/@a:b)', '<p><a href="https://matrix.to/#/@a:b">u</a></p>'],
    ['```ts\na < b\n```', '<pre><code class="language-ts">a &lt; b\n</code></pre>'],
  ])('%s', (text, expected) => {
    expect(html(text)).toBe(expected);
  });

  test('tables are tables, without style attributes', () => {
    expect(html('|a|b|\n|:-|-:|\n|1|2|')).toMatch(/^<table>[\s\S]*<th>a<\/th>[\s\S]*<td>2<\/td>[\s\S]*<\/table>$/);
    expect(html('|a|b|\n|:-|-:|\n|1|2|')).not.toContain('style');
  });

  test.each(['hello', 'two\n\nparagraphs', 'two\nlines', 'a < b & c "d"', '@room and @alice:server', 'https://plain.link'])(
    'plain text has no second copy: %s',
    (text) => {
      expect(renderMarkdown(text)).toEqual({ body: text });
    },
  );

  test('an escape is formatting, because the body shows the backslash', () => {
    expect(html('2 \\* 3')).toBe('<p>2 * 3</p>');
  });
});

describe('hostile markdown (G14)', () => {
  test.each([
    ['[a](javascript:alert(1)) **x**'],
    ['[a](data:text/html,x) **x**'],
    ['[a](vbscript:x) **x**'],
    ['[a](file:///etc/passwd) **x**'],
    ['[a](//evil.example) **x**'],
    ['[a](/relative) **x**'],
    ['[a](mxc://a/b) **x**'],
    ['<javascript:alert(1)> **x**'],
    ['[a](JaVaScRiPt&colon;alert(1)) **x**'],
    ['[a](&#1;javascript:alert(1)) **x**'],
    ['[a]: javascript:x\n\n[a] **x**'],
  ])('only web and mail links are links: %s', (text) => {
    expect(html(text)).not.toMatch(/<a|href/);
  });

  test('raw HTML is text', () => {
    expect(html('<script>x</script><img src=x onerror=y> **b**')).toBe(
      '<p>&lt;script&gt;x&lt;/script&gt;&lt;img src=x onerror=y&gt; <strong>b</strong></p>',
    );
  });

  test('an image is never loaded by being seen', () => {
    expect(html('![alt](https://evil.example/x.png?secret)')).toBe('<p><a href="https://evil.example/x.png?secret">alt</a></p>');
    expect(html('[![alt](https://e.example/i)](https://q.r)')).toBe('<p><a href="https://q.r">alt</a></p>');
    expect(html('![](https://e.example/i)')).toBe('<p><a href="https://e.example/i">https://e.example/i</a></p>');
    expect(html('![a](mxc://s/m) **b**')).not.toContain('<img');
  });

  test.each([['```a" onclick="x\ny\n```'], ['```"><script>\ny\n```'], ['```x y\ny\n```'], [`\`\`\`${'l'.repeat(33)}\ny\n\`\`\``]])(
    'the language of a fence is a plain word or nothing: %s',
    (text) => {
      expect(html(text)).toMatch(/^<pre><code(?: class="language-x")?>y\n<\/code><\/pre>$/);
    },
  );

  test('control characters, direction overrides and half characters are gone from both forms', () => {
    const rendered = renderMarkdown('a\u0000b\u202ec\u2066d\ud800e\u0007\u001b[31m **f**\r\ng\u2028h');

    expect(rendered.body).toBe('abcd\ufffde[31m **f**\ng\nh');
    expect(rendered.formattedBody).toBe('<p>abcd\ufffde[31m <strong>f</strong><br />\ng<br />\nh</p>');
  });

  test('what scripts and emoji need stays', () => {
    expect(renderMarkdown('👨‍👩‍👧 می‌خواهم \u200f').body).toContain('👨‍👩‍👧 می‌خواهم');
  });

  const N = LIMITS.partTextBytes;
  const pathological: [string, string][] = [
    '[',
    '![',
    '*a ',
    '**a*b_c__',
    '>',
    '> ',
    '<',
    '~~a',
    '|',
    '- ',
    '1. ',
    '[a](',
    '[a](<b',
    '&',
    '"',
    '\\',
    '[a]: b\n',
    '|a|b|\n|-|-|\n',
    '_a',
    'a_',
    '*a\n',
    '`a',
    '<a:b',
    ']',
    '[[]',
    '~',
    '*_',
    '[*_`<!',
    '***a',
    '- a\n + b\n',
    '\n\n> - ',
    '![[',
    '](x) ',
    '#',
    '\t',
    '`',
    '``` ',
  ].map((unit) => [unit, unit.repeat(Math.ceil(N / unit.length)).slice(0, N)]);
  pathological.push(['nested list', Array.from({ length: 150 }, (_, depth) => `${' '.repeat(2 * depth)}- a`).join('\n')]);
  pathological.push(['backtick runs', Array.from({ length: 150 }, (_, n) => '`'.repeat(n + 1)).join(' ')]);
  pathological.push(['nested emphasis', `${'*'.repeat(4_000)}a${'*'.repeat(4_000)}`]);

  test.each(pathological)('a part full of %j stays within depth, elements and size', (_name, text) => {
    for (const { body, formattedBody = '' } of [renderMarkdown(text), renderMarkdown(text, { live: true })]) {
      expect(depthOf(formattedBody)).toBeLessThanOrEqual(100);
      expect(formattedBody.match(/<[a-z]/g)?.length ?? 0).toBeLessThanOrEqual(LIMITS.htmlTagsPerPart);
      expect(body.trim()).toBe(text.trim());
    }
  });

  test('what is larger than any part is shown plain', () => {
    expect(renderMarkdown('**a** '.repeat(10_000))).not.toHaveProperty('formattedBody');
  });

  test('any text gives balanced HTML of allowed elements, and never throws', () => {
    fc.assert(
      fc.property(markdownText(), fc.boolean(), (text, isLive) => {
        const { body, formattedBody = '' } = renderMarkdown(text, { live: isLive });

        expect(body.isWellFormed()).toBe(true);
        expect(depthOf(formattedBody)).toBeLessThanOrEqual(100);
        for (const [tag] of formattedBody.matchAll(/<[^>]*>/g)) expect(tag).toMatch(ALLOWED);
      }),
      { numRuns: 400 },
    );
  });
});

describe('an unfinished text', () => {
  test.each([
    ['hello **bol', '<p>hello <strong>bol</strong></p>'],
    ['hello **', '<p>hello</p>'],
    ['hello **bold*', '<p>hello <strong>bold</strong></p>'],
    ['use `cod', '<p>use <code>cod</code></p>'],
    ['see [link](http://e', '<p>see link</p>'],
    ['text\n-', '<p>text</p>'],
    ['text\n--', '<p>text</p>'],
    ['text\n##', '<p>text</p>'],
    ['text\n\n|a|b|', '<p>text</p>'],
    ['text\n\n|a|b|\n|-', '<p>text</p>'],
    ['```ts\nx\n``', '<pre><code class="language-ts">x</code></pre>'],
    ['```ts\nx', '<pre><code class="language-ts">x</code></pre>'],
  ])('%j does not flash half a format', (text, expected) => {
    expect(live(text)?.replace('x\n</code>', 'x</code>')).toBe(expected);
  });

  test('a table that stands keeps growing', () => {
    expect(live('|a|b|\n|-|-|\n|1')).toContain('<td>1</td>');
    expect(live('|a|b|\n|-|-|\n|1|2|\n|3|')).toContain('<td>3</td>');
  });

  test('the final text is shown as it is', () => {
    expect(html('hello **bol *x*')).toBe('<p>hello **bol <em>x</em></p>');
  });

  test('no prefix of a text makes it throw or opens what it does not close', () => {
    const text =
      '# T\n\nA **b** [l](https://x.y/z) `c`\n\n|a|b|\n|-|-|\n|1|2|\n\n- x\n  - y\n\n```py\nprint("<b>")\n```\n\n> q\n\n![i](https://x/y)';
    for (let end = 0; end <= text.length; end += 1) expect(depthOf(live(text.slice(0, end)) ?? '')).toBeLessThanOrEqual(100);
  });
});

const ALLOWED =
  /^<(?:\/?(?:p|strong|em|s|ul|li|blockquote|pre|h[1-6]|table|thead|tbody|tr|th|td|code|ol|a)|br \/|hr \/|ol start="\d{1,9}"|code class="language-[A-Za-z0-9_+#.-]{1,32}"|a href="(?:https?:\/\/|mailto:)[^"<>]*")>$/i;

/** Deepest nesting; fails when an element is closed that is not the innermost, or left open. */
function depthOf(text: string): number {
  const open: string[] = [];
  let deepest = 0;
  for (const [, slash, name = '', selfClosing] of text.matchAll(/<(\/?)([a-z0-9]+)[^>]*?(\/?)>/gi)) {
    if (selfClosing === '/') continue;
    if (slash === '/') expect(open.pop()).toBe(name);
    else open.push(name);
    deepest = Math.max(deepest, open.length);
  }
  expect(open).toEqual([]);
  return deepest;
}

function markdownText(): fc.Arbitrary<string> {
  const piece = fc.constantFrom(
    '**',
    '*',
    '_',
    '`',
    '```',
    '```js\n',
    '\n',
    '\n\n',
    '- ',
    '1. ',
    '> ',
    '# ',
    '|',
    '|-|-|\n',
    '[a](',
    'https://x.y',
    'javascript:x',
    ')',
    '![',
    ']',
    '<b>',
    '<!--',
    '&lt;',
    '&#x0;',
    '\\',
    '~~',
    '    ',
    '"',
  );
  return fc.array(fc.oneof(piece, fc.string({ unit: 'binary', maxLength: 8 })), { maxLength: 40 }).map((pieces) => pieces.join(''));
}
