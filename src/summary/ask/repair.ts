import { escapeTags } from '../../conversation/tags.js';
import { defaultPrompt, delimited, requestOf, type PromptSettings, type SummaryRequest } from './prompts.js';

/** The reason why a snapshot is requested again. */
export type RepairProblem = 'too long';

const shorten =
  'The summary below is too long. Write it again within the length asked for at the end: drop what is done and settled first, then detail; ' +
  'keep open requests, rules of the user, and every path, identifier and number that is still needed, word for word.';

/** Asks once for a shorter snapshot. The existing snapshot is data between delimiters. */
export function repairRequest({
  snapshot,
  key,
  maxTokens,
  prompt = defaultPrompt,
}: {
  snapshot: string;
  key: string;
  maxTokens: number;
  prompt?: PromptSettings;
}): SummaryRequest {
  return requestOf([shorten, delimited('state_snapshot', key, escapeTags(snapshot))], maxTokens, prompt);
}
