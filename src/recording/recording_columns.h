/* SPDX-License-Identifier: BSD-2-Clause */
/* Column sections: arrays of structs as one column for each member, and back. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* One member of the struct: where it lies, and its bytes. */
struct hl_column {
	size_t offset;
	size_t size;
};

struct hl_columns {
	const struct hl_column *columns;
	size_t count;
	size_t struct_bytes;
	size_t row_bytes; /* sum of the columns' sizes */
};

extern const struct hl_columns hl_node_columns;	 /* struct hl_recording_node */
extern const struct hl_columns hl_value_columns; /* struct hl_recording_value */

/* ${bytes} has room for rows * row_bytes. */
void hl_columns_split(const struct hl_columns *columns, const void *structs, size_t rows,
		      void *bytes);
void hl_columns_join(const struct hl_columns *columns, const void *bytes, size_t rows,
		     void *structs);
