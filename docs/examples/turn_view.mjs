// What to show of the turns of a run, from text events that may come late, twice or never.
// `now` is in seconds of a clock that never goes back, such as performance.now() / 1000.
const HOLD_EVENTS = 256, HOLD_SECONDS = 10, REMEMBERED_TURNS = 256;

export class TurnView {
  #turns = new Map(); // by turn id: what is shown, and what waits for a gap before it to fill
  #ended = [];

  // What is to be shown from now on, a new object each time; null if that has not changed.
  apply(event, now) {
    const turn = this.#turn(event.turn_id);
    if (!turn?.following || event.seq <= turn.shown.seq) return null; // too late, or a duplicate
    if (!turn.held.has(event.seq)) turn.held.set(event.seq, { event, since: now });
    const advanced = advance(turn);
    return giveUp(turn, now) || advanced ? turn.shown : null;
  }

  // The turns whose gaps are open for too long by now. Ask now and then: events may have stopped.
  expire(now) {
    return [...this.#turns.values()].filter((turn) => giveUp(turn, now)).map((turn) => turn.shown);
  }

  // `place` is the snapshot ({ epoch, seq }) that the text is of; without one it is the whole.
  resync(turn_id, text, place = null) {
    const turn = this.#turn(turn_id);
    if (!turn || place?.seq < turn.shown.seq) return null;
    const { epoch, seq } = place ?? turn.shown;
    turn.shown = { turn_id, text, epoch, seq, needs_resync: false };
    turn.following = place !== null;
    for (const each of turn.held.keys()) if (!place || each <= seq) turn.held.delete(each);
    advance(turn);
    return turn.shown;
  }

  // The turn is over; `text` is that of its message, and replaces what was streamed.
  finalize(turn_id, text = null) {
    const { shown, held } = this.#turns.get(turn_id) ?? {};
    this.#turns.delete(turn_id);
    this.#ended = [...this.#ended.filter((id) => id !== turn_id), turn_id].slice(-REMEMBERED_TURNS);
    if (text !== null) return { ...(shown ?? empty(turn_id)), text, needs_resync: false };
    return shown ? { ...shown, needs_resync: shown.needs_resync || held.size > 0 } : null;
  }

  #turn(id) {
    if (this.#ended.includes(id)) return null;
    const turn = this.#turns.get(id) ?? { shown: empty(id), held: new Map(), following: true };
    this.#turns.set(id, turn);
    return turn;
  }
}

const empty = (turn_id) => ({ turn_id, text: "", epoch: -1, seq: -1, needs_resync: false });

// Apply what is next, as far as it is here.
function advance(turn) {
  const before = turn.shown;
  for (let held; (held = turn.held.get(turn.shown.seq + 1)); turn.held.delete(turn.shown.seq)) {
    const { type, epoch, seq, text } = held.event;
    if (epoch < turn.shown.epoch) turn.shown = { ...turn.shown, seq }; // of a void attempt
    else if (type === "TextReset") turn.shown = { ...turn.shown, seq, epoch, text: "" };
    else turn.shown = { ...turn.shown, seq, epoch, text: turn.shown.text + text };
  }
  return turn.shown !== before;
}

// Stand still if a gap is open for too long.
function giveUp(turn, now) {
  const [oldest] = turn.held.values();
  if (!oldest || (turn.held.size <= HOLD_EVENTS && now < oldest.since + HOLD_SECONDS)) return false;
  turn.held.clear();
  turn.following = false;
  turn.shown = { ...turn.shown, needs_resync: true };
  return true;
}
