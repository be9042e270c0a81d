/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers and texts as people read them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define HL_FORMAT_MAX 32 /* room for any of the texts below */

/* "0 B", "1023 B", "1.5 MiB", "-3.0 GiB". Returns ${buffer}, as do the others. */
const char *hl_format_bytes(int64_t bytes, char buffer[HL_FORMAT_MAX]);

/* "896 B", "1,920 B", "3 KiB": nothing is rounded. */
const char *hl_format_exact_bytes(uint64_t bytes, char buffer[HL_FORMAT_MAX]);

/* "1,234,567". */
const char *hl_format_count(int64_t count, char buffer[HL_FORMAT_MAX]);

/* Either of the two. */
const char *hl_format_figure(int64_t figure, bool is_bytes, char buffer[HL_FORMAT_MAX]);

/* What makes a word out of "block" that fits ${count} of them. */
static inline const char *hl_format_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

/* "12.3%"; "-" when ${whole} is 0 or less. */
const char *hl_format_percent(int64_t part, int64_t whole, char buffer[HL_FORMAT_MAX]);

/* "####............": what part ${part} is of ${whole}. */
const char *hl_format_bar(uint64_t part, uint64_t whole, char buffer[HL_FORMAT_MAX]);

/* "15 ms", "3.21 s", "12 min 5 s", "26 h 3 min". */
const char *hl_format_duration(uint64_t ns, char buffer[HL_FORMAT_MAX]);

/* "2026-01-31T12:34:56Z". */
const char *hl_format_time(uint64_t realtime_ns, char buffer[HL_FORMAT_MAX]);

/* How many bytes the control character at ${text} has, see hl_utf8_is_control(). 0: it is not one.
 */
size_t hl_format_control(const char *text);

/*
 * Writes ${text}, which may come from anywhere, to ${out}; the bytes of control characters, and
 * those that are no UTF-8, are written as `\x1b`. So do all views that write names as plain text.
 */
void hl_format_put(FILE *out, const char *text);

/* The first control character or byte of ${text}; what is no UTF-8 is written as it is. Returns how many bytes that took. */
size_t hl_format_put_letter(FILE *out, const char *text);

/*
 * Writes ${text} as hl_format_put() does, broken between words where lines would be longer than
 * ${width} columns (0: nowhere). The first line begins in ${column}, further ones are indented by
 * ${indent}.
 */
void hl_format_put_wrapped(FILE *out, const char *text, size_t column, size_t indent, size_t width);

/* How many columns the terminal behind ${fd} has; 80 where there is none, or it does not say. */
size_t hl_format_terminal_width(int fd);

/* How many columns of a terminal ${text} takes. */
size_t hl_format_width(const char *text);

/*
 * Copies ${text} to the ${size} bytes of ${buffer}, cut off where a terminal's ${columns} (0: no
 * limit) or the buffer end; "..." then stands at the end. Returns ${buffer}.
 */
const char *hl_format_shortened(const char *text, size_t columns, char *buffer, size_t size);

/*
 * Replaces template arguments in ${text}, names of functions, by "...", where that is shorter:
 * "std::map<...>::operator[]". What stands between '<' and '>' for itself stays: "<lambda()>",
 * "operator<", "<T as Trait>::run".
 */
void hl_format_templates(char *text);

/* The same as hl_format_shortened(), cut off in front, for paths and places: "...source.c:12". */
const char *hl_format_tail(const char *text, size_t columns, char *buffer, size_t size);
