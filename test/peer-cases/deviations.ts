/** Every expectation of another system that this engine does not meet, with the reason. Unlisted cases pass exactly. */
export interface Deviation {
  /** Indexes of the cases. */
  cases: number[];
  /**
   * Keys of `expect` that do not hold; `policy`: the configuration as it stands is refused at the door. Each of them
   * must fail in each of the cases, all other keys hold.
   */
  keys: string[];
  /**
   * `indices`: another algorithm's exact cut, whose properties hold. `choice`: what a peer asserts and this product
   * does otherwise on purpose.
   */
  kind: 'indices' | 'choice';
  why: string;
}

const cut = ['cutIndex', 'keptIndices'];

export const deviations: Deviation[] = [
  // Where the cut lies.
  {
    cases: [0, 2, 5, 8, 19, 22],
    keys: cut,
    kind: 'indices',
    why: 'The peer keeps the largest suffix within its ceiling. Here the tail begins with a user turn where one lies within reach.',
  },
  {
    cases: [8],
    keys: ['summarizerInput.excludes'],
    kind: 'indices',
    why: 'The tail begins with the user turn after "Response 3", which is therefore evicted, and so read by the summarizer.',
  },
  {
    cases: [62, 63, 76, 77],
    keys: cut,
    kind: 'indices',
    why: 'The peer moves back to the call and keeps more than its ceiling says. Here ceilings hold wherever any safe cut lies within them; the pair goes whole.',
  },
  {
    cases: [59],
    keys: ['cutIndex'],
    kind: 'indices',
    why: 'The peer moves forward over an orphan result. Here the nearest safe cut is the last one that evicts no more than was asked for; the orphan is shown as labelled data.',
  },
  {
    cases: [91],
    keys: ['cutIndex'],
    kind: 'indices',
    why: 'All four messages fit; a cut by hand then evicts half of them, not the least that is safe. The pending call stays in both.',
  },
  {
    cases: [93],
    keys: cut,
    kind: 'indices',
    why: 'Only the request could be evicted, which the head would carry word for word again: nothing is gained. The pending call stays.',
  },
  {
    cases: [73],
    keys: ['keptIndices'],
    kind: 'indices',
    why: 'The peer summarizes the only user message. Here the newest user message stays word for word, so there is nothing to evict.',
  },
  {
    cases: [149],
    keys: ['keptIndices'],
    kind: 'indices',
    why: 'What was said between a call and its late result lies inside their group: groups are contiguous, so that a context stays in the order of the log.',
  },
  {
    cases: [164, 165],
    keys: ['summarizedIndices'],
    kind: 'indices',
    why: 'First messages that are to stay are pinned: the head carries them word for word, while the log is evicted from its beginning without gaps.',
  },
  {
    cases: [164],
    keys: ['keptIndices'],
    kind: 'indices',
    why: 'The two pinned messages are shown in the head, not as messages of their own; the tail is the one that the peer keeps.',
  },
  {
    cases: [163],
    keys: ['summaryOffset'],
    kind: 'choice',
    why: 'First messages that are to stay stand inside the summary turn as pins, not before it: between system messages and tail there is one head.',
  },
  {
    cases: [105],
    keys: ['cutIndex'],
    kind: 'choice',
    why: 'The peer may summarize everything, the last request included. The newest user message always stays word for word.',
  },
  {
    cases: [115, 117],
    keys: ['hiddenCount', 'keptIndices', 'markerInserted'],
    kind: 'choice',
    why: 'The peer hides even numbers of messages behind the first one, here none. Cuts lie between groups, whatever their number.',
  },
  {
    cases: [116, 119],
    keys: ['keptIndices'],
    kind: 'choice',
    why: 'The peer always keeps the first message. Here the request that a cut lies behind is carried, the oldest messages go first.',
  },
  {
    cases: [171, 172],
    keys: ['safeCutIndices'],
    kind: 'choice',
    why: 'The peer keeps a whole tool loop that began with thinking. An autonomous run is one such loop and could never be compacted: here a cut may lie between any two batches.',
  },
  // Configurations that would compact again at once.
  {
    cases: [4, 13, 23],
    keys: [...cut, 'policy'],
    kind: 'choice',
    why: 'A tail as large as the trigger would meet it again at once, so the configuration is refused with path and hint; cut by the same ceiling alone, the tail keeps within it.',
  },
  {
    cases: [20],
    keys: ['policy'],
    kind: 'choice',
    why: 'Keeping as much as the trigger asks for is refused with path and hint: such a compaction could never help. By the ceiling alone nothing is cut, as the peer asserts.',
  },
  {
    cases: [6],
    keys: ['error'],
    kind: 'choice',
    why: 'A fraction of an unknown window is taken of `fallbackContextWindow`, and the status says so; a session must not stop because a model is new.',
  },
  // What triggers.
  {
    cases: [66],
    keys: ['triggered'],
    kind: 'choice',
    why: "The usage that the agent's own model reported goes on counting after another model's turn; discarding it makes triggers come too late.",
  },
  {
    cases: [82],
    keys: ['triggered'],
    kind: 'choice',
    why: 'A head counts toward the trigger, but is at most 0.4 of the target: no summary can be larger than the trigger by itself, as this one is.',
  },
  {
    cases: [166],
    keys: ['urgency'],
    kind: 'choice',
    why: 'A trigger leaves the agent running while the summary is written; only a context beyond its budget, or a person who asks, cannot wait.',
  },
  // What the summarizer reads and writes.
  {
    cases: [7],
    keys: ['summarizerCalls', 'summarizerInput.excludes'],
    kind: 'choice',
    why: 'The peer trims what its summarizer cannot read at once. Here it is read in chunks, so nothing leaves unread.',
  },
  {
    cases: [158],
    keys: ['keptIndices', 'summarizedIndices', 'summarizerInput.excludes'],
    kind: 'choice',
    why: 'The peer stops at a message that its summarizer cannot read at once. Here that message is read in pieces and the whole range is evicted.',
  },
  {
    cases: [86],
    keys: ['summarizerInput.excludes'],
    kind: 'choice',
    why: 'Content stays word for word as data between delimiters with a nonce; only tags that spell our own are defused. Escaping every tag would spoil code and cost tokens.',
  },
  {
    cases: [113],
    keys: ['summarizerInput.contains'],
    kind: 'choice',
    why: 'The earlier snapshot is no message of the history: it is passed apart, between its own delimiters with a nonce, with the instruction to merge it.',
  },
  {
    cases: [109],
    keys: ['summaryEquals'],
    kind: 'choice',
    why: 'A summary is verified by code, and asked for once more only where identifiers were dropped; these messages hold none, so a second call would be paid for nothing.',
  },
  {
    cases: [190],
    keys: ['recordedUsage'],
    kind: 'choice',
    why: 'In memory a summarizer is a function from request to text and reports no usage: calls are recorded by our own count. The service stores what the endpoint reports.',
  },
  {
    cases: [75],
    keys: ['summaryHasNoArchivePointer'],
    kind: 'choice',
    why: 'Archive part and head are one commit: there is no head whose archive was not written, so the pointer always stands.',
  },
  // Calls and results that do not match.
  {
    cases: [139],
    keys: ['effectiveContents'],
    kind: 'choice',
    why: 'A result that comes after its call was evicted is shown as labelled data and evicted with its turn later; the peer drops it in silence.',
  },
  {
    cases: [140],
    keys: ['keptIndices'],
    kind: 'choice',
    why: 'The late result of an evicted call is shown as labelled data beside the valid one; the peer drops it in silence.',
  },
  {
    cases: [150],
    keys: ['notGrouped'],
    kind: 'choice',
    why: 'Real transcripts reuse ids while an older call was never answered; the result belongs to the latest open call, the older one gets a synthetic result.',
  },
  // Reductions.
  {
    cases: [144],
    keys: ['insertedNotes', 'keptIndices', 'noteContains'],
    kind: 'choice',
    why: 'A stand-in takes the place of a long result and leaves its call; a result that is shorter than any pointer to it stays as it is.',
  },
  {
    cases: [145],
    keys: ['insertedNotes', 'keptIndices', 'noRole'],
    kind: 'choice',
    why: 'The latest tool batch is never reduced at a commit: the agent has not worked with it yet.',
  },
  {
    cases: [146],
    keys: ['insertedNotes', 'noteContains'],
    kind: 'choice',
    why: 'The only tool batch is the latest one, which is never reduced at a commit: the agent has not worked with it yet.',
  },
  {
    cases: [181],
    keys: ['keptIndices', 'noRole', 'noToolCalls'],
    kind: 'choice',
    why: 'The only tool batch is the latest one, which no retention drops, though the agent has answered since: only a lack of room may take it.',
  },
  {
    cases: [183],
    keys: ['mustNotContainToolCall'],
    kind: 'choice',
    why: 'One call of a batch is not taken out of its assistant message: a batch is dropped whole, and never the latest one.',
  },
  {
    cases: [184],
    keys: ['reasoningKeptAt'],
    kind: 'choice',
    why: 'Messages of the tail are shown word for word, with their reasoning: providers refuse tool loops whose reasoning was changed.',
  },
  {
    cases: [185],
    keys: ['keptIndices', 'noRole', 'noToolCalls'],
    kind: 'choice',
    why: 'The older batch goes and its text stays, as the peer asserts, but in a stand-in of its message; the latest batch stays.',
  },
  {
    cases: [189],
    keys: ['summaryMustCarryFacts'],
    kind: 'choice',
    why: 'Of values that nobody has used, code carries names and ids, not words such as "low" and "design": the model is asked for them, and the archive finds them.',
  },
  {
    cases: [154],
    keys: ['keptIndices'],
    kind: 'choice',
    why: 'The system prompt is never dropped for the sake of a budget; a budget that cannot be met is answered with Budget.Unreachable.',
  },
  {
    cases: [174, 175],
    keys: ['mustNotContainToolCall'],
    kind: 'choice',
    why: 'Nothing leaves a context without a note that points to it. Where not even notes fit, the answer is Budget.Unreachable, and the context stays as it is.',
  },
  {
    cases: [176],
    keys: ['mustNotContainToolCall'],
    kind: 'choice',
    why: 'Both results are shortened to head, tail and pointer, which is enough for the budget; the batch itself may stay.',
  },
];
