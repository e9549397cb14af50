import { z } from 'zod';
import { failureTypes, type PalimpsestError } from '../errors.js';
import { component, opaque } from './schema.js';

type FailureDetail = NonNullable<PalimpsestError['details']>[string];

/** A failure as an HTTP answer: `application/problem+json` (RFC 9457). */
export type Problem = z.infer<typeof problem>;
export const problem = component(
  'Problem',
  z.object({
    type: z.string().describe('`urn:palimpsest:failure:` and the failure type.'),
    title: z.string().describe('Title of the status, the same for all its failures.'),
    status: z.int().describe('Status of this answer.'),
    detail: z.string().describe('Description of the failure for people.'),
    failure: z.enum(failureTypes).describe('Failure type of docs/failures.md.'),
    path: z
      .string()
      .optional()
      .describe('Offending field of body, query or path, e.g. `messages[3].tool_calls[0].id`.'),
    hint: z.string().optional().describe('The next step.'),
    details: z
      .record(z.string(), opaque<FailureDetail>({ description: 'Text, number, boolean or null.' }))
      .optional()
      .describe('Numbers and names that explain the failure.'),
    requestId: z
      .string()
      .optional()
      .describe('The request id, as in the header `x-request-id` and in the log of the API.'),
  }),
  {
    description: 'The reason why a request was refused or failed (RFC 9457). Nothing was stored.',
    example: {
      type: 'urn:palimpsest:failure:Input.Invalid',
      title: 'The request is invalid',
      status: 400,
      detail: 'messages[0].role "robot" is not known.',
      failure: 'Input.Invalid',
      path: 'messages[0].role',
      hint: 'Known roles: system, developer, user, assistant, tool, function.',
      requestId: 'b7f0c6e2-6a3d-4d0e-9d1c-0f8f1f6f3c11',
    },
  },
);
