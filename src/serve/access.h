/* SPDX-License-Identifier: BSD-2-Clause */
/* Who may ask: whoever has the token, where there is one, and no page of another site. */
#pragma once

#include "serve/http.h"

#include <netinet/in.h>

/*
 * Judges the header of a request. ${token}: NULL when none is needed; ${address}: where we listen. 0; or the status to refuse it
 * with, and a sentence in *${ret_sentence}.
 */
unsigned hl_access_refusal(const struct hl_http *http, struct MHD_Connection *connection,
			   const char *method, const char *version, const char *token,
			   const struct sockaddr_in *address, const char **ret_sentence);
