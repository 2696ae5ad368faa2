"""Sessions with next hops: aiosmtplib connects, our transaction sends."""
