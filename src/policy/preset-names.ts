/** Systems whose documented defaults can be taken over by name. `hybrid` is what `smart-agent` calls its own. */
export const presetNames = ['adk', 'smart-agent', 'hybrid', 'langchain', 'deepagents', 'zrb'] as const;
export type PresetName = (typeof presetNames)[number];
