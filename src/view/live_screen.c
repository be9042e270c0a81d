/* SPDX-License-Identifier: BSD-2-Clause */
/* The screen of `heapline live` and its keys; see live.h. */
#include "view/live.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
/* ncurses calls functions bool, TRUE and so on; its own names stay out of other sources. */
#include <ncurses.h>
#include <term.h>

#define KEY_ESCAPE  27
#define KEY_CTRL_C  3
#define KEY_CTRL_Z  26
#define ESC_WAIT_MS 25 /* after which Esc is a key, and no part of another */

enum { PAIR_HEAVY = 1, PAIR_WARNING };

struct screen {
	struct hl_live *live;
	struct hl_live_page page;
	uint64_t next_ns, interval_ns;
	char typed[sizeof(((struct hl_live *)0)->filter)];
	bool is_typing, has_color, ends, needs_rows;
	int line;
};

static void draw_line(void *context, const char *text, unsigned emphasis)
{
	struct screen *screen = context;
	attr_t attributes = A_NORMAL;

	if (emphasis & (HL_LIVE_HEAD | HL_LIVE_SELECTED))
		attributes |= A_REVERSE;
	if (emphasis & (HL_LIVE_HEAVY | HL_LIVE_WARNING))
		attributes |= A_BOLD;
	if (screen->has_color && emphasis & HL_LIVE_WARNING)
		attributes |= (attr_t)COLOR_PAIR(PAIR_WARNING);
	else if (screen->has_color && emphasis & HL_LIVE_HEAVY)
		attributes |= (attr_t)COLOR_PAIR(PAIR_HEAVY);
	move(screen->line, 0);
	attrset((int)attributes);
	addstr(text);
	if (emphasis & (HL_LIVE_HEAD | HL_LIVE_SELECTED))
		for (int at = getcurx(stdscr); getcury(stdscr) == screen->line && at < COLS; at++)
			addch(' ');
	attrset(A_NORMAL);
	screen->line++;
}

static int draw(struct screen *screen)
{
	struct hl_live_page *page = &screen->page;

	page->width = (size_t)COLS;
	page->height = (size_t)LINES;
	page->prompt = screen->is_typing ? screen->typed : NULL;
	/* Painted once more where the selected row was out of sight. */
	for (int pass = 0; pass < 2; pass++) {
		screen->line = 0;
		erase();
		int r = hl_live_paint(screen->live, page);
		if (r < 0)
			return r;
		size_t first = page->first;
		if (page->selected < first)
			page->first = page->selected;
		else if (page->shown && page->selected >= first + page->shown)
			page->first = page->selected - page->shown + 1;
		if (page->first == first)
			break;
	}
	if (!page->shown && !page->help && screen->live->row_count && LINES > 2) {
		move(LINES - 2, 0); /* the last line names keys */
		clrtoeol();
		addnstr("no room for rows", COLS - 1);
	}
	refresh();
	return 0;
}

/* ---- keys ---- */

static void choose(struct screen *screen, int64_t row)
{
	int64_t last = (int64_t)screen->live->row_count - 1;

	row = row > last ? last : row;
	screen->page.selected = row < 0 ? 0 : (size_t)row;
}

static void type(struct screen *screen, int key)
{
	size_t length = strlen(screen->typed);

	if (key == '\n' || key == '\r' || key == KEY_ENTER) {
		screen->is_typing = false;
	} else if (key == KEY_ESCAPE || key == KEY_CTRL_C) {
		screen->is_typing = false;
		screen->typed[0] = '\0';
	} else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length) {
		/* a letter can have several bytes */
		while (length-- && (screen->typed[length] & 0xc0) == 0x80)
			;
		screen->typed[length] = '\0';
	} else if (key >= ' ' && key < 256 && length + 1 < sizeof(screen->typed)) {
		screen->typed[length] = (char)key;
		screen->typed[length + 1] = '\0';
	}
	strcpy(screen->live->filter, screen->typed);
	screen->needs_rows = true;
}

static void leave(struct screen *screen)
{
	struct hl_live *live = screen->live;

	if (live->depth)
		hl_live_rise(live);
	else
		live->filter[0] = screen->typed[0] = '\0';
}

static void change_by(struct hl_live *live)
{
	live->by = live->by == HL_VIEW_BY_FUNCTION ? HL_VIEW_BY_LINE
		   : live->by == HL_VIEW_BY_LINE   ? HL_VIEW_BY_MODULE
		   : live->by == HL_VIEW_BY_MODULE ? HL_VIEW_BY_THREAD
						   : HL_VIEW_BY_FUNCTION;
	live->depth = 0;
}

/* Keys that move; false: another key. */
static bool move_by(struct screen *screen, int key)
{
	int64_t selected = (int64_t)screen->page.selected, page = (int64_t)screen->page.shown;

	if (key == KEY_UP || key == 'k')
		choose(screen, selected - 1);
	else if (key == KEY_DOWN || key == 'j')
		choose(screen, selected + 1);
	else if (key == KEY_PPAGE)
		choose(screen, selected - page);
	else if (key == KEY_NPAGE)
		choose(screen, selected + page);
	else if (key == KEY_HOME)
		choose(screen, 0);
	else if (key == KEY_END)
		choose(screen, INT64_MAX);
	else
		return false;
	return true;
}

/* Keys that change which rows there are. */
static void change(struct screen *screen, int key)
{
	struct hl_live *live = screen->live;

	screen->needs_rows = true;
	if (key == KEY_LEFT)
		live->sort = live->sort ? live->sort - 1 : HL_LIVE_COLUMNS - 1;
	else if (key == KEY_RIGHT)
		live->sort = (live->sort + 1) % HL_LIVE_COLUMNS;
	else if (key == 'c')
		live->cum = !live->cum;
	else if (key == 'b')
		change_by(live);
	else if (key == 'u')
		live->unit = hl_unit_other(live->unit);
	else if (key == 'm')
		hl_live_mark(live);
	else if (key == KEY_ESCAPE)
		leave(screen);
	else if ((key == '\n' || key == '\r' || key == KEY_ENTER) && live->row_count)
		hl_live_drill(live, &live->rows[screen->page.selected]);
	else
		return;
	if (key != 'm')
		screen->page.selected = 0;
}

static void suspend(void)
{
	endwin();
	raise(SIGTSTP);
}

static void obey(struct screen *screen, int key)
{
	if (key == KEY_RESIZE)
		return;
	if (screen->is_typing)
		type(screen, key);
	else if (screen->page.help)
		screen->page.help = false;
	else if (key == 'q' || key == KEY_CTRL_C)
		screen->ends = true;
	else if (key == KEY_CTRL_Z)
		suspend();
	else if (key == ' ')
		screen->page.paused = !screen->page.paused;
	else if (key == '?' || key == 'h')
		screen->page.help = true;
	else if (key == '/')
		screen->is_typing = true;
	else if (!move_by(screen, key))
		change(screen, key);
}

/* ---- the loop ---- */

static uint32_t chosen_id(const struct screen *screen)
{
	const struct hl_live *live = screen->live;
	size_t selected = screen->page.selected;

	return selected && selected < live->row_count ? live->rows[selected].id : 0;
}

/* Whoever has chosen a row stays with it, wherever it is now; the first place stays the first. */
static void follow(struct screen *screen, uint32_t chosen)
{
	const struct hl_live *live = screen->live;

	for (size_t i = 0; chosen && i < live->row_count; i++)
		if (live->rows[i].id == chosen)
			screen->page.selected = i;
	choose(screen, (int64_t)screen->page.selected);
}

static int run(struct screen *screen, hl_live_look *look, void *context, struct hl_error *err)
{
	int r = 0;

	while (r == 0 && !screen->ends) {
		r = draw(screen);
		uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		uint64_t left_ns = now_ns < screen->next_ns ? screen->next_ns - now_ns : 0;
		timeout((int)(left_ns / 1000000) + 1);
		int key = getch();
		for (timeout(0); key != ERR && !screen->ends; key = getch())
			obey(screen, key);
		uint32_t chosen = chosen_id(screen);
		bool is_time = hl_clock_ns(CLOCK_MONOTONIC) >= screen->next_ns;
		if (is_time)
			screen->next_ns = hl_clock_ns(CLOCK_MONOTONIC) + screen->interval_ns;
		if (r == 0 && is_time && !screen->page.paused && !screen->live->end[0])
			r = look(screen->live, context, err);
		else if (r == 0 && screen->needs_rows)
			r = hl_live_update(screen->live);
		screen->needs_rows = false;
		follow(screen, chosen);
	}
	return r < 0 ? hl_error_set(err, r, "cannot show the screen: %s", strerror(-r)) : 0;
}

int hl_live_screen(struct hl_live *live, double seconds, size_t row_limit, bool color,
		   hl_live_look *look, void *context, struct hl_error *err)
{
	struct screen screen = {.live = live,
				.page = {.keys = true, .row_limit = row_limit, .line = draw_line},
				.interval_ns = (uint64_t)(seconds * 1e9)};
	SCREEN *terminal = newterm(NULL, stdout, stdin);

	if (!terminal || !tigetstr("cup")) {
		const char *name = getenv("TERM");
		if (terminal) {
			endwin();
			delscreen(terminal);
		}
		return hl_error_set(err, -ENOTSUP,
				    "cannot use the terminal '%s': it cannot place the cursor; "
				    "--once and --json need no terminal",
				    name ? name : "");
	}
	screen.page.context = &screen;
	screen.next_ns = hl_clock_ns(CLOCK_MONOTONIC) + screen.interval_ns;
	raw();
	noecho();
	nonl();
	curs_set(0);
	keypad(stdscr, TRUE);
	set_escdelay(ESC_WAIT_MS);
	screen.has_color = color && has_colors() && start_color() == OK &&
			   use_default_colors() == OK &&
			   init_pair(PAIR_HEAVY, COLOR_RED, -1) == OK &&
			   init_pair(PAIR_WARNING, COLOR_YELLOW, -1) == OK;
	int r = run(&screen, look, context, err);
	endwin();
	delscreen(terminal);
	return r;
}
