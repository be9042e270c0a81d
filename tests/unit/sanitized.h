/* SPDX-License-Identifier: BSD-2-Clause */
/* Loops over each of many offsets take longer strides under a sanitizer, which is ten times as
 * slow; the plain build covers every one. */
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

/* Prime to the sizes of records, so that every field of some of them is met. */
#define STRIDE(plain) (IS_SANITIZED ? 13 * (plain) : (plain))
