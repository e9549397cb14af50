import { CommanderError, type Command } from 'commander';
import { CommandGroup, newProgram, type SetCode } from './command/command.js';
import { addBackfillCommands } from './commands/backfill.js';
import { addCompactionCommands } from './commands/compaction.js';
import { addCompletionCommands } from './commands/completion.js';
import { addDevCommands, addHealthCommands, addServerCommands } from './commands/servers.js';
import { addImportCommand } from './commands/import.js';
import { addLimitCommands } from './commands/limits.js';
import { addLogCommands } from './commands/log.js';
import { addPolicyCommands } from './commands/policy.js';
import { addSessionCommands, addTimelineCommand } from './commands/sessions.js';
import { addTokenCommands } from './commands/tokens.js';
import { invalid } from '../errors.js';
import { failureJson } from './terminal/failures.js';
import { exitCodes } from './command/exit-codes.js';

/** Declares every command. Each loads its code when it runs, because the Temporal SDK alone takes half a second. */
function commands(setCode: SetCode): Command {
  const program = newProgram();
  const group = (heading: string) => new CommandGroup(program, setCode, heading);
  const start = group('Try it:');
  addDevCommands(start);
  const serve = group('Run it:');
  addServerCommands(serve);
  addTokenCommands(serve);
  addLimitCommands(serve);
  const look = group('Look at sessions:');
  addSessionCommands(look);
  addTimelineCommand(look);
  addLogCommands(look);
  const change = group('Change sessions:');
  addCompactionCommands(change);
  addPolicyCommands(change);
  const many = group('Old sessions, in bulk:');
  addImportCommand(many);
  addBackfillCommands(many);
  const health = group('Check it:');
  addHealthCommands(health);
  addCompletionCommands(health, program);
  return program;
}

/** Runs the command line of `process.argv`; returns the exit code. */
export async function runCommandLine(): Promise<number> {
  let code: number = exitCodes.done;
  const program = commands((given) => (code = given));
  try {
    if (process.argv.length === 2) program.outputHelp();
    else await program.parseAsync();
    return code;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return exitCodes.done;
    if (process.argv.includes('--json'))
      console.log(failureJson(invalid(error.message.replace(/^error: /, ''))));
    return exitCodes.usage;
  }
}
