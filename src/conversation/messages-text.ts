/** Messages of a turn as JSON text, checked to be exact: too many or too long to be held as values where others wait. */
export class MessagesText {
  constructor(
    readonly json: string,
    /** Of the list. */
    readonly count: number,
  ) {}
}
