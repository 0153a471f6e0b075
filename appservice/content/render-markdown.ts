/**
 * A model's text is hostile: whoever wrote a page it has read may steer it. So its HTML never counts as HTML, its links go to the web or to
 * mail only, its images are never fetched by looking at them (a URL is a way out for data), and what leaves here passes a second, independent
 * filter with the list of the Matrix spec (v1.19, m.room.message, `org.matrix.custom.html`). Where formatting would be too large, too deep or
 * would add nothing, there is none: `body` is always complete and readable. Cost: about 1 ms per kB of text, bounded by the size of a part;
 * linear on every pathological input tried (test/unit/appservice/content/render-markdown.test.ts).
 */
import MarkdownIt from 'markdown-it';
import sanitizeHtml from 'sanitize-html';
import { LIMITS } from '../../src/limits.ts';
import { cleanText } from './clean-text.ts';
import { settleMarkdown } from './settle-markdown.ts';

export interface Rendered {
  /** The markdown as the model wrote it: what clients without HTML, notifications and bridges show. */
  readonly body: string;
  /** Absent when it would only repeat `body`. */
  readonly formattedBody?: string;
  /** There is no HTML because it would have more elements than clients bear; a shorter text would have it. */
  readonly tooRich?: true;
}

/** `live`: the text still grows, so what is half written at its end is closed or held back. */
export interface RenderOptions {
  readonly live?: boolean;
}

/** The spec asks clients to stop at 100; deeper text is shown plain instead. */
const MAX_DEPTH = 80;
/** markdown-it drops what lies deeper, so this must be above MAX_DEPTH: then nothing that was dropped is ever shown. */
const PARSER_DEPTH = 100;
/** Twice a part: a part with a reopened fence and a marker fits, an unsplit answer is shown plain. */
const MAX_CHARS = 2 * LIMITS.partTextBytes;

const LINK = /^(?:https?:\/\/|mailto:)[^\s]/iu;

const ALLOWED_TAGS =
  'del h1 h2 h3 h4 h5 h6 blockquote p a ul ol sup sub li b i u strong em s code hr br div table thead tbody tr th td caption pre span'.split(
    ' ',
  );

const FILTER: sanitizeHtml.IOptions = {
  allowedTags: ALLOWED_TAGS,
  allowedAttributes: { a: ['href'], ol: ['start'], code: ['class'] },
  allowedClasses: { code: [/^language-[A-Za-z0-9_+#.-]{1,32}$/] },
  allowedSchemes: ['http', 'https', 'mailto'],
  allowedSchemesAppliedToAttributes: ['href'],
  allowProtocolRelative: false,
  disallowedTagsMode: 'discard',
  nestingLimit: PARSER_DEPTH,
  parseStyleAttributes: false,
};

// A constant, not a service: it holds the rules and no state between calls.
const markdown = createMarkdown();
type Markdown = InstanceType<typeof MarkdownIt>;
type Token = ReturnType<Markdown['parse']>[number];

function createMarkdown(): Markdown {
  const md = new MarkdownIt({ html: false, linkify: false, breaks: true, typographer: false, maxNesting: PARSER_DEPTH });
  md.validateLink = (url) => LINK.test(url.trim());
  // Reference definitions vanish from the text and resolve neither across parts nor before they are written.
  md.disable('reference');
  return md;
}

export function renderMarkdown(text: string, { live = false }: RenderOptions = {}): Rendered {
  const body = cleanText(text).replace(/^\n+/u, '').trimEnd();
  if (body.length > MAX_CHARS) return { body };
  const settled = live ? settleMarkdown(body) : body;
  const tokens = markdown.parse(settled, {});
  if (isPlain(tokens, body)) return { body };
  const { deepest, elements } = measureElements(tokens);
  if (deepest > MAX_DEPTH) return { body };
  if (elements > LIMITS.htmlTagsPerPart) return { body, tooRich: true };
  replaceImages(tokens);
  const html = sanitizeHtml(markdown.renderer.render(tokens, markdown.options, {}), FILTER).trim();
  return html === '' ? { body } : { body, formattedBody: html };
}

/** True when the paragraphs hold nothing but the text that `body` shows already. */
function isPlain(tokens: readonly Token[], body: string): boolean {
  const paragraphs: string[] = [];
  for (const token of tokens) {
    if (token.type === 'paragraph_open' || token.type === 'paragraph_close') continue;
    if (token.type !== 'inline') return false;
    let line = '';
    for (const child of token.children ?? []) {
      if (child.type === 'text') line += child.content;
      else if (child.type === 'softbreak') line += '\n';
      else return false;
    }
    paragraphs.push(line);
  }
  return paragraphs.join('\n\n') === body;
}

/** Depth and number of elements, counted on tokens: before the HTML exists. */
function measureElements(tokens: readonly Token[]): { deepest: number; elements: number } {
  let depth = 0;
  let deepest = 0;
  let elements = 0;
  // Inline tokens hold one more level of tokens, and that has none.
  for (const token of tokens.flatMap((block) => [block, ...(block.children ?? [])])) {
    if (token.nesting >= 0 && token.tag !== '') elements += 1;
    depth += token.nesting;
    deepest = Math.max(deepest, depth);
  }
  return { deepest, elements };
}

/** An image becomes a link with its description: seen only by who follows it. Inside a link only the description stays. */
function replaceImages(tokens: readonly Token[]): void {
  for (const token of tokens) {
    if (token.type !== 'inline' || token.children == null) continue;
    let links = 0;
    token.children = token.children.flatMap((child) => {
      if (child.type === 'link_open') links += 1;
      if (child.type === 'link_close') links -= 1;
      return child.type === 'image' ? asLink(child, links > 0) : [child];
    });
  }
}

function asLink(image: Token, insideLink: boolean): Token[] {
  const url = String(image.attrGet('src') ?? '');
  const text = makeToken(image, 'text', '', 0);
  text.content = plainText(image.children ?? []) || (insideLink ? 'image' : url);
  if (insideLink) return [text];
  const open = makeToken(image, 'link_open', 'a', 1);
  open.attrs = [['href', url]];
  return [open, text, makeToken(image, 'link_close', 'a', -1)];
}

function makeToken(like: Token, type: string, tag: string, nesting: -1 | 0 | 1): Token {
  const Constructor = like.constructor as new (type: string, tag: string, nesting: -1 | 0 | 1) => Token;
  return new Constructor(type, tag, nesting);
}

const plainText = (tokens: readonly Token[]): string =>
  tokens.map((token) => (token.type === 'text' || token.type === 'code_inline' ? token.content : plainText(token.children ?? []))).join('');
