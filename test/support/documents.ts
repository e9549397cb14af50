/** Reads README and `docs`: their examples, links and headings. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Paths from the root of the repository. */
export const documents = [
  'README.md',
  'packages/client/README.md',
  'examples/README.md',
  ...readdirSync(path.join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

export const document = (file: string): string => readFileSync(path.join(root, file), 'utf8');

export interface Example {
  /** The language that the fence names: `ts`, `sh`, `python`. */
  language: string;
  code: string;
  /** Number of its first line in the document, from 1. */
  line: number;
}

const fence = /^```(\w*)\n([^]*?)^```$/gm;

/** Returns the code blocks of a document, or of one section, in order. */
export function examplesIn(markdown: string, heading?: string): Example[] {
  const [from, text] = heading === undefined ? [0, markdown] : section(markdown, heading);
  return [...text.matchAll(fence)].map(({ 1: language = '', 2: code = '', index }) => ({
    language,
    code,
    line: markdown.slice(0, from + index).split('\n').length + 1,
  }));
}

function section(markdown: string, heading: string): [from: number, text: string] {
  // A comment in code may look like a heading.
  const text = markdown.replaceAll(fence, (block) => ' '.repeat(block.length));
  const found = new RegExp(`^(#+) ${heading}$`, 'm').exec(text);
  if (found === null) throw new Error(`There is no heading ${heading}.`);
  const from = found.index + found[0].length;
  const length = text.slice(from).search(new RegExp(`^#{1,${found[1]?.length ?? 1}} `, 'm'));
  return [from, markdown.slice(from, length < 0 ? undefined : from + length)];
}

/** Returns a TypeScript example as a JavaScript module for Node. `packages` has the addresses of the packages that it imports. */
export function asJavaScript(code: string, packages: Readonly<Record<string, string>> = {}): string {
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 };
  return Object.entries(packages).reduce(
    (text, [name, address]) => text.replaceAll(`from '${name}'`, `from '${address}'`),
    ts.transpileModule(code, { compilerOptions }).outputText,
  );
}

/** Returns the text outside of code. */
const proseOf = (markdown: string): string => markdown.replaceAll(fence, '').replaceAll(/`[^`\n]*`/g, '');

export const linksIn = (markdown: string): string[] =>
  [...proseOf(markdown).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);

/** Returns the anchors of a document's headings, as GitHub makes them. */
export function anchorsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, title = ''] of markdown.replaceAll(fence, '').matchAll(/^#+ (.+)$/gm)) {
    const slug = title
      .toLowerCase()
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(/\s/g, '-');
    let anchor = slug;
    for (let same = 1; anchors.has(anchor); same++) anchor = `${slug}-${same}`;
    anchors.add(anchor);
  }
  return anchors;
}
