import type { LoggedMessage } from '../../conversation/message.js';
import { nameOf } from '../../conversation/render.js';
import { plainTextOf } from '../text/sentences.js';
import { factsSection, type Section } from '../answer/sections.js';
import { parseSnapshot } from '../answer/snapshot.js';
import { inWords, type Said, type Wording } from './wording.js';
import type { Steps } from '../../steps.js';

/** The sources, by speaker, with which the wording of a summary is compared. */
export interface Sources {
  /** Texts of user and system, and of the assistant unless they mention a suspected instruction. */
  trusted: Iterable<Said>;
  /** Tool output; `origin` is `tool:<name>`, or `tool` if no name is known. */
  tools: Iterable<{ origin: string; text: Said }>;
  /**
   * Earlier summaries that were merged. Their facts and labelled claims remain claims of tools; their other text passed this
   * check when they were made.
   */
  previous?: readonly string[];
}

/** The messages by speaker. Each iterable can be read once. */
export function sourcesIn(
  messages: Iterable<LoggedMessage>,
  previous: readonly (string | null)[] = [],
): Sources {
  const isTool = ({ message: { role } }: LoggedMessage) => role === 'tool' || role === 'function';
  return {
    trusted: (function* () {
      for (const logged of messages) {
        const text = plainTextOf(logged.message);
        const isQuoting = logged.message.role === 'assistant' && suspects.test(text);
        if (!isTool(logged) && !isQuoting) yield text;
      }
    })(),
    tools: (function* () {
      const names = new Map<string, string>();
      for (const logged of messages) {
        const { message } = logged;
        for (const call of message.tool_calls ?? []) if (call.id) names.set(call.id, nameOf(call));
        if (!isTool(logged)) continue;
        const name = message.name ?? names.get(message.tool_call_id ?? '');
        yield { origin: name ? `tool:${name}` : 'tool', text: plainTextOf(message) };
      }
    })(),
    previous: previous.filter((text) => text !== null),
  };
}

/** The same sources with their words already read, one message a step. */
export function* readAhead(sources: Sources): Steps<Sources> {
  const words = (said: Said) => (typeof said === 'string' ? inWords(said) : said);
  const trusted: Said[] = [];
  for (const said of sources.trusted) {
    trusted.push(words(said));
    yield;
  }
  const tools: { origin: string; text: Said }[] = [];
  for (const { origin, text } of sources.tools) {
    tools.push({ origin, text: words(text) });
    yield;
  }
  const { previous } = sources;
  return { trusted, tools, ...(previous === undefined ? {} : { previous }) };
}

/** An agent that noticed a planted instruction may quote it; the quotation does not make the instruction the agent's own. */
const suspects =
  /\b(?:prompt[- ]?injections?|(?:embedded|hidden|planted|injected|suspicious|malicious|untrusted) (?:instructions?|orders?|requests?|content|text|messages?)|(?:instructions?|orders?|requests?) (?:that (?:is|are) )?(?:in|inside|within|from|embedded in) (?:the|that|this|these|a) (?:tool|page|web ?page|website|file|output|results?|document|e-?mail|ticket|readme)|(?:will not|won't|not going to|should not|shouldn't|refuse to|decline to|cannot|can't) (?:follow|obey|comply with|act on) (?:it|that|this|them|these|those|the)|(?:ignor(?:e|ed|ing)|disregard(?:ed|ing)?) (?:it|that|this|them|these|those|the) (?:\w+ )?(?:instructions?|orders?|requests?))\b/i;

/** The label of a claim, as written after it and within it. */
export const labelled = /\((tools?(?::[^()\s]{1,80})?)(?:, [^()\s]{1,80})?\)|\bclaim of (tool[^\s,]{0,80})/;

/** Reads all sources once, in a fixed order. */
export function readSources(
  wording: Wording,
  { trusted, tools, previous = [] }: Sources,
  among: readonly Section[],
): void {
  for (const text of trusted) wording.read(text, null);
  for (const { origin, text } of tools) wording.read(text, safeOrigin(origin));
  for (const [key, items] of previous.flatMap((text) => [...parseSnapshot(text, among)])) {
    for (const item of items) {
      const label = labelled.exec(item);
      const origin = label?.[1] ?? label?.[2];
      const isClaim = key === factsSection.key || origin !== undefined;
      wording.read(item, isClaim ? safeOrigin(origin ?? 'tool') : null);
    }
  }
}

/** The server of a tool chooses its name, so a label shows it as one plain word. */
function safeOrigin(origin: string): string {
  return origin.slice(0, 80).replace(/[^\p{L}\p{N}_:./-]+/gu, '_');
}
