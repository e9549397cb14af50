import { appendTurn, embedTexts, giveUp, indexTexts, setPaused } from './session.js';
import { finishBackfill, followCompactions, openBackfill, retryBackfill, saveBackfill } from './backfill.js';
import { commit } from './commit.js';
import { consolidate } from './consolidate.js';
import type { Dependencies } from './run.js';
import { changeState } from './changeState.js';
import { finishErasures, reviveBackfills, sweepSessions } from './sweep.js';
import { measure } from './measure.js';
import { plan } from './plan.js';
import { planSessions } from './planSessions.js';
import { recordOutcomes } from './recordOutcomes.js';
import { repair } from './repair.js';
import { selectSessions } from './selectSessions.js';
import { summarizeChunk } from './summarizeChunk.js';

/** Short steps on PostgreSQL, queue `…-db`. */
export function createDatabaseActivities(dependencies: Dependencies) {
  return {
    appendTurn: appendTurn(dependencies),
    measure: measure(dependencies),
    plan: plan(dependencies),
    commit: commit(dependencies),
    giveUp: giveUp(dependencies),
    indexTexts: indexTexts(dependencies),
    setPaused: setPaused(dependencies),
    sweepSessions: sweepSessions(dependencies),
    openBackfill: openBackfill(dependencies),
    selectSessions: selectSessions(dependencies),
    planSessions: planSessions(dependencies),
    recordOutcomes: recordOutcomes(dependencies),
    followCompactions: followCompactions(dependencies),
    saveBackfill: saveBackfill(dependencies),
    retryBackfill: retryBackfill(dependencies),
    finishBackfill: finishBackfill(dependencies),
    finishErasures: finishErasures(dependencies),
    reviveBackfills: reviveBackfills(dependencies),
  };
}

/** Steps that call the model, queue `…-llm`. */
export function createModelActivities(dependencies: Dependencies) {
  return {
    summarizeChunk: summarizeChunk(dependencies),
    consolidate: consolidate(dependencies),
    changeState: changeState(dependencies),
    repair: repair(dependencies),
    embedTexts: embedTexts(dependencies),
  };
}

export type DatabaseActivities = ReturnType<typeof createDatabaseActivities>;
export type ModelActivities = ReturnType<typeof createModelActivities>;
