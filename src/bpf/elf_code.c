/* SPDX-License-Identifier: BSD-2-Clause */
/* Places of code in ELF files; see elf_code.h. */
#include "bpf/elf_code.h"

bool hl_elf_code_offset(Elf *elf, uint64_t address, uint64_t *ret_offset)
{
	size_t count = 0;

	if (elf_getphdrnum(elf, &count) < 0)
		return false;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr segment;
		if (!gelf_getphdr(elf, (int)i, &segment) || segment.p_type != PT_LOAD ||
		    !(segment.p_flags & PF_X) || address < segment.p_vaddr ||
		    address - segment.p_vaddr >= segment.p_filesz)
			continue;
		*ret_offset = address - segment.p_vaddr + segment.p_offset;
		return true;
	}
	return false;
}
