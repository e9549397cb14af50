/**
 * The turns that were acknowledged to the agents, with which the database is compared. Each message has a unique marker, which
 * identifies it wherever it is read.
 */
import type { ChatMessage } from '../../src/conversation/message.js';

export interface SessionJournal {
  tenant: string;
  session: string;
  /** Increases when the session is erased and begun again. */
  incarnation: number;
  /** JSON of each acknowledged message, in order. */
  messages: string[];
  /** Acknowledged turns: id, and number of messages in the log after it. */
  turns: { turnId: string; throughSeq: number }[];
  /** Nothing of it is stored: no turn was acknowledged yet, or none since it was erased. */
  erased: boolean;
}

const marker = /mk-[a-z0-9]+-[a-z0-9]+-i\d+-t\d+-m\d+;/g;

export function markersIn(text: string): string[] {
  return [...new Set(text.match(marker) ?? [])];
}

export function markerOf(
  of: Pick<SessionJournal, 'tenant' | 'session' | 'incarnation'>,
  turn: number,
  message: number,
): string {
  return `mk-${of.tenant}-${of.session}-i${of.incarnation}-t${turn}-m${message};`;
}

/** Every session that ever was, by tenant and id. */
export class Journal {
  private readonly sessions = new Map<string, SessionJournal>();

  begin(tenant: string, session: string, inherited: Partial<SessionJournal> = {}): SessionJournal {
    const entry = {
      ...{ tenant, session, incarnation: 1, messages: [], turns: [] },
      ...inherited,
      erased: inherited.messages === undefined,
    };
    this.sessions.set(`${tenant}/${session}`, entry);
    return entry;
  }

  find(tenant: string, session: string): SessionJournal | undefined {
    return this.sessions.get(`${tenant}/${session}`);
  }

  all(): SessionJournal[] {
    return [...this.sessions.values()];
  }

  /** Those that hold a turn. */
  living(): SessionJournal[] {
    return this.all().filter(({ messages }) => messages.length > 0);
  }
}

export function acknowledged(
  entry: SessionJournal,
  turnId: string,
  messages: readonly ChatMessage[],
  throughSeq: number,
): void {
  entry.messages.push(...messages.map((message) => JSON.stringify(message)));
  entry.turns.push({ turnId, throughSeq });
  entry.erased = false;
}

export function erased(entry: SessionJournal): void {
  entry.incarnation++;
  entry.messages = [];
  entry.turns = [];
  entry.erased = true;
}
