/** A model endpoint that shows every observed fault, and otherwise answers with a good summary. */
import {
  blank,
  contentFilter,
  contextOverflow,
  cutOff,
  delayed,
  dropBeforeHeaders,
  dropMidBody,
  empty,
  limitOf,
  materialOf,
  ok,
  rateLimited,
  refusalField,
  silence,
  status,
  truncating,
  webPage,
  type Script,
} from '../support/model-replies.js';
import type { RecordedRequest } from '../support/model-server.js';
import { markersIn } from './journal.js';
import type { Random } from './random.js';

/** Part of every bad answer: if the checker finds it, a bad answer was accepted. */
export const junk = 'zqjunk7731';

/** A good answer to the request: notes with their references and changes of the state, else sections. */
function fairAnswer(request: RecordedRequest): string {
  const asked = request.body.messages.at(-1)?.content ?? '';
  if (asked.includes('Now write "## Notes"')) return fairNotes(asked);
  const notes = blocksOf('notes', asked).flatMap((text) => text.split('\n'));
  if (asked.includes('Now write "## State"')) return fairState(asked, notes);
  if (asked.includes('These notes of the memory')) return spread(notes, asked).join('\n');
  return fairSections(request);
}

function fairNotes(asked: string): string {
  const [record = ''] = blocksOf('record', asked);
  const notes = record.split(/^(?=<\d{3}>\d+ )/m).flatMap(noteOn);
  const answer = ['## Notes', ...spread(notes, asked)];
  return [...answer, ...(asked.includes('Then write "## State"') ? [fairState(asked, notes)] : [])].join(
    '\n',
  );
}

/** The subject of a message of the record, or of its part in the record; none if it has no text. */
function noteOn(message: string): string[] {
  const [, seq] = /^<\d{3}>(\d+) /.exec(message) ?? [];
  const [marker] = markersIn(message);
  if (seq === undefined || marker === undefined) return [];
  const [opening = ''] = /\b(?:request|answer|result) \d+ about \w+ /.exec(message) ?? [];
  const [named = ''] = /\bcase \w+-\d+/.exec(message) ?? [];
  return [`- ${opening}${marker} ${named} [m${seq}]`];
}

/** The newest request of the notes is in force, and no earlier one. */
function fairState(asked: string, notes: readonly string[]): string {
  const newest = notes.findLast((note) => /^- request \d/.test(note));
  if (newest === undefined) return '## State\n- none';
  const [reference = ''] = /\[m\d+\]$/.exec(newest) ?? [];
  const [state = ''] = blocksOf('state', asked);
  const earlier = [...state.matchAll(/^- (T\d+) /gm)].map(([, id]) => `- ${id} done ${reference}`);
  return ['## State', ...earlier, newest.replace('- ', '- new request: ')].join('\n');
}

function blocksOf(name: string, asked: string): string[] {
  const blocks = new RegExp(`<(${name} \\d{12}(?: \\d+)?)>\\n([\\s\\S]*?)\\n</\\1>`, 'g');
  return [...asked.matchAll(blocks)].map(([, , text = '']) => text);
}

/** As many lines as are asked for, from all of the notes. */
function spread(lines: readonly string[], asked: string): string[] {
  const most = Number(/about (\d+) lines/.exec(asked)?.[1] ?? 2);
  const step = Math.max(1, lines.length / most);
  return lines.filter((_, index) => Math.floor(index / step) > Math.floor((index - 1) / step));
}

/** Names every second message of the record, up to the limit. */
function fairSections(request: RecordedRequest): string {
  const material = materialOf(request);
  const found = markersIn(material).filter((_, index) => index % 2 === 0);
  const most = Math.max(1, Math.floor(Math.min(limitOf(request) / 2, material.length / 12) / 20));
  const said = [...material.matchAll(/\b(?:request|answer|result) \d+ about \w+/g)].slice(0, 4);
  return [
    '## Session intent',
    ...said.map(([text]) => `- ${text}`),
    '## Current state',
    ...found.slice(0, most).map((marker) => `- the record holds ${marker}`),
    `- ${markersIn(material).length} messages were read.`,
  ].join('\n');
}

const good: Script = (request) => ok(fairAnswer(request))(request);

const misbehaviours: Record<string, Script> = {
  'rate limit': rateLimited('1'),
  'rate limit without a time': rateLimited(),
  'server error': status(500),
  'bad gateway': status(502, `<html>${junk}</html>`),
  'quota used up': status(429, { error: { message: `quota ${junk}`, code: 'insufficient_quota' } }),
  'not authorized': status(401),
  silence: silence(),
  'connection dropped': dropBeforeHeaders(),
  'answer broken off': dropMidBody(),
  'empty answer': empty(),
  'blank answer': blank(),
  refusal: ok(`I'm sorry, but I can't help with that. ${junk}`),
  'refusal in Russian': ok(`Извините, я не могу помочь с этим запросом. ${junk}`),
  'refusal in its own field': refusalField(),
  'content filter': contentFilter(),
  'answer cut off': (request) => cutOff(fairAnswer(request).slice(0, 60))(request),
  'overflow in words': contextOverflow(),
  'silent truncation': truncating(60),
  'web page': webPage(`Sign in ${junk}`),
  placeholder: ok(`[summary of the conversation goes here] ${junk}`),
  slow: delayed(3_000, good),
  'not JSON': status(200, `{"choices": [ ${junk}`),
  'no choices': status(200, { id: junk, choices: [] }),
};

export interface Endpoint {
  script: Script;
  /** Every answer fails for this long. */
  failFor(ms: number): void;
  /** From now on every answer is fair. */
  behave(): void;
  /** How often each misbehaviour was played. */
  played: Map<string, number>;
  /** Numbers of the requests that got a fair answer. */
  fair: Set<number>;
}

export function misbehavingEndpoint(random: Random, share = 0.12): Endpoint {
  const played = new Map<string, number>();
  let deadUntil = 0;
  let behaves = false;
  const fair = new Set<number>();
  const answerFairly: Script = (request) => {
    fair.add(request.number);
    return good(request);
  };
  const count = (name: string): void => void played.set(name, (played.get(name) ?? 0) + 1);
  return {
    ...{ played, fair },
    failFor: (ms) => void (deadUntil = Date.now() + ms),
    behave: () => void (behaves = true),
    script: (request) => {
      if (behaves) return answerFairly(request);
      if (Date.now() < deadUntil) {
        count('outage');
        return status(503)(request);
      }
      if (!random.chance(share)) return answerFairly(request);
      const name = random.pick(Object.keys(misbehaviours));
      count(name);
      return misbehaviours[name]!(request);
    },
  };
}
