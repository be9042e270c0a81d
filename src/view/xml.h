/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Texts that may be anything, as content or attributes of XML. Control characters become their
 * pictures (U+2400 and on); what is no character, or changes the direction of text, U+FFFD.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* All of ${text}. */
void hl_xml_text(FILE *out, const char *text);

/* ${text}, or as much of it as ${cell_max} columns of a fixed-width font hold, then an ellipsis. */
void hl_xml_text_cut(FILE *out, const char *text, size_t cell_max);

/* ${text} cut likewise, as a JSON string with its quotes, for data within XML. */
void hl_xml_json_string(FILE *out, const char *text, size_t cell_max);

/* ${text} with its line breaks: a script. Its author is trusted not to use control characters. */
void hl_xml_source(FILE *out, const char *text);

/* Columns that ${text} takes in a fixed-width font; counted up to the first beyond ${cell_max}. */
size_t hl_xml_cells(const char *text, size_t cell_max);
